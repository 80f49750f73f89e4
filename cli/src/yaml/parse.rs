//! Text to nodes with places.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use granit_parser::{Event, Marker, Parser, ScalarStyle};

use super::{
    fault::Faults,
    node::{Content, Field, Node, Path, Place},
};

/// Most nodes of a document, aliases written out: a guess far above 12,000 subscriptions, and low
/// enough that a document made to explode stays harmless.
const NODES_MAX: usize = 500_000;

/// Reads one YAML document. An empty one is an empty mapping.
///
/// # Errors
/// Syntax errors (the first one: what follows it cannot be told), and all repeated keys.
pub(crate) fn parse(name: &str, text: &str) -> Result<Node, Faults> {
    let name: Arc<str> = Arc::from(name);
    let start = Place::File {
        name: name.clone(),
        line: 1,
        column: 1,
    };
    let place = move |at: &Marker| Place::File {
        name: name.clone(),
        line: at.line(),
        column: at.col() + 1,
    };
    let mut reader = Reader::new(Box::new(place));
    let node = reader.document(text);
    let node = node.unwrap_or_else(|| Node::empty_map(start));
    reader.faults.or(Some(node))
}

/// Reads the value of an environment variable or flag: YAML if it is some, else the text itself.
pub(crate) fn parse_value(place: &Place, text: &str) -> Node {
    let at = place.clone();
    let mut reader = Reader::new(Box::new(move |_| at.clone()));
    let node = reader.document(text);
    let as_text = || Node {
        place: place.clone(),
        content: Content::Scalar {
            text: text.to_owned(),
            plain: true,
        },
    };
    match node {
        // Only flow syntax counts: "a: b" in a variable is text.
        Some(node) if reader.faults.is_empty() && is_value_syntax(text, &node) => node,
        Some(_) | None => as_text(),
    }
}

fn is_value_syntax(text: &str, node: &Node) -> bool {
    match node.content {
        Content::List(_) => text.trim_start().starts_with('['),
        Content::Map(_) => text.trim_start().starts_with('{'),
        Content::Null | Content::Scalar { .. } => true,
    }
}

/// A collection that is still open.
enum Open {
    List(Vec<Node>),
    Map {
        fields: Vec<Field>,
        keys: BTreeSet<String>,
        /// The key whose value comes next.
        key: Option<(String, Place)>,
    },
}

struct Reader {
    place: Box<dyn Fn(&Marker) -> Place>,
    faults: Faults,
    open: Vec<(Place, usize, Open)>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    done: Option<Node>,
}

impl Reader {
    fn new(place: Box<dyn Fn(&Marker) -> Place>) -> Self {
        Self {
            place,
            faults: Faults::default(),
            open: Vec::new(),
            anchors: BTreeMap::new(),
            nodes: 0,
            done: None,
        }
    }

    fn document(&mut self, text: &str) -> Option<Node> {
        for event in Parser::new_from_str(text) {
            match event {
                Ok((event, span)) => {
                    let place = (self.place)(&span.start);
                    if !self.event(event, place) {
                        return self.done.take();
                    }
                }
                Err(error) => {
                    let place = (self.place)(error.marker());
                    let message = format!("not valid YAML: {}", error.info());
                    self.faults.push(&place, &Path::root(), message);
                    return None;
                }
            }
        }
        self.done.take()
    }

    /// Takes one event; false: enough was read.
    fn event(&mut self, event: Event<'_>, place: Place) -> bool {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                let is_null = plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let content = if is_null {
                    Content::Null
                } else {
                    Content::Scalar {
                        text: text.into_owned(),
                        plain,
                    }
                };
                self.value(Node { place, content }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open.push((place, anchor, Open::List(Vec::new())));
                true
            }
            Event::MappingStart(_, anchor, _) => {
                let map = Open::Map {
                    fields: Vec::new(),
                    keys: BTreeSet::new(),
                    key: None,
                };
                self.open.push((place, anchor, map));
                true
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (place, anchor, open) = self.open.pop().expect("the parser pairs its events");
                let content = match open {
                    Open::List(items) => Content::List(items),
                    Open::Map { fields, .. } => Content::Map(fields),
                };
                self.value(Node { place, content }, anchor)
            }
            Event::Alias(anchor) => {
                let Some(anchored) = self.anchors.get(&anchor) else {
                    let message = "an alias inside its own anchor has no end; write it out";
                    self.faults.push(&place, &Path::root(), message);
                    return false;
                };
                self.nodes += count(anchored);
                if self.nodes > NODES_MAX {
                    self.too_many(&place);
                    return false;
                }
                let content = anchored.content.clone();
                self.value(Node { place, content }, 0)
            }
            Event::DocumentStart(..) if self.done.is_some() => {
                let message = "a second document; put everything into one";
                self.faults.push(&place, &Path::root(), message);
                false
            }
            _ => true,
        }
    }

    fn too_many(&mut self, place: &Place) {
        let message = format!("more than {NODES_MAX} values; split the file");
        self.faults.push(place, &Path::root(), message);
    }

    fn value(&mut self, node: Node, anchor: usize) -> bool {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            self.too_many(&node.place);
            return false;
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.done = Some(node),
            Some((_, _, Open::List(items))) => items.push(node),
            Some((_, _, Open::Map { fields, keys, key })) => match key.take() {
                Some((name, place)) => fields.push(Field {
                    key: name,
                    place,
                    value: node,
                }),
                None => match node.content {
                    Content::Scalar { text, .. } => {
                        if !keys.insert(text.clone()) {
                            let message = format!("key {text:?} is given twice; remove one");
                            self.faults.push(&node.place, &Path::root(), message);
                        }
                        *key = Some((text, node.place));
                    }
                    Content::Null | Content::List(_) | Content::Map(_) => {
                        let message = format!("{} cannot be a key; use a name", node.describe());
                        self.faults.push(&node.place, &Path::root(), message);
                        *key = Some((String::new(), node.place));
                    }
                },
            },
        }
        true
    }
}

fn count(node: &Node) -> usize {
    match &node.content {
        Content::Null | Content::Scalar { .. } => 1,
        Content::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Content::Map(fields) => {
            1 + fields
                .iter()
                .map(|field| count(&field.value))
                .sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_their_places() {
        let root = parse("f.yaml", "a: 1\nb:\n  - x\n  - {c: \"2\"}\n").expect("valid");
        let Some(Content::List(items)) = root.get("b").map(|b| &b.content) else {
            panic!("not a list: {root:?}");
        };
        assert_eq!(items[0].place.to_string(), "f.yaml:3:5");
        let c = items[1].get("c").expect("there");
        assert_eq!(c.place.to_string(), "f.yaml:4:9");
        assert_eq!(
            c.content,
            Content::Scalar {
                text: "2".to_owned(),
                plain: false
            }
        );
    }

    #[test]
    fn an_empty_document_is_an_empty_mapping() {
        for text in ["", "# only a comment\n", "---\n"] {
            let root = parse("f.yaml", text).expect("valid");
            assert!(
                matches!(&root.content, Content::Null)
                    || matches!(&root.content, Content::Map(fields) if fields.is_empty()),
                "{text:?}: {root:?}"
            );
        }
    }

    #[test]
    fn syntax_errors_and_repeated_keys_have_places() {
        let faults = parse("f.yaml", "a: [1\nb: 2\n").expect_err("not closed");
        assert!(faults.to_string().starts_with("f.yaml:2:"), "{faults}");
        let faults = parse("f.yaml", "a: 1\nb: 2\na: 3\nb: 4\n").expect_err("repeated");
        assert_eq!(
            faults.to_string(),
            "f.yaml:3:1: key \"a\" is given twice; remove one\n\
             f.yaml:4:1: key \"b\" is given twice; remove one\n2 faults"
        );
    }

    #[test]
    fn a_second_document_is_refused() {
        let faults = parse("f.yaml", "a: 1\n---\nb: 2\n").expect_err("two documents");
        assert!(faults.to_string().contains("second document"), "{faults}");
    }

    #[test]
    fn aliases_are_written_out_and_cannot_explode() {
        let root = parse("f.yaml", "a: &x {b: 1}\nc: *x\n").expect("valid");
        assert_eq!(root.get("c").and_then(|c| c.get("b")).map(|b| &b.place), {
            root.get("a").and_then(|a| a.get("b")).map(|b| &b.place)
        });
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..9 {
            let below = format!("*a{}", level - 1);
            let items = vec![below; 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        let faults = parse("f.yaml", &bomb).expect_err("a bomb");
        assert!(faults.to_string().contains("split the file"), "{faults}");
    }

    #[test]
    fn variables_hold_text_or_flow_values() {
        let place = Place::Environment(Arc::from("X"));
        let list = parse_value(&place, "[a, b]");
        assert!(matches!(list.content, Content::List(items) if items.len() == 2));
        for text in ["host:9092", "a: b", "[unclosed", "5s", "- a"] {
            let node = parse_value(&place, text);
            assert_eq!(
                node.content,
                Content::Scalar {
                    text: text.to_owned(),
                    plain: true
                }
            );
        }
    }
}
