//! Reads a whole `serde` struct from a node and still finds every fault: whatever the struct
//! refuses is reported with its place and taken out, and the rest is read again.

mod error;
mod reader;

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use self::{
    error::{Problem, Step},
    reader::Reader,
};
use super::{
    fault::Faults,
    node::{Content, Node, Path},
};

/// Reads `T` from `node`. Faults are added to `faults`; then the value, if there is one, lacks
/// what was at fault.
pub(crate) fn section<T: DeserializeOwned>(
    node: &Node,
    path: &Path,
    faults: &mut Faults,
) -> Option<T> {
    let mut rest = node.clone();
    let mut removed = BTreeSet::new();
    loop {
        let error = match T::deserialize(Reader { node: &rest }) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        if let Problem::Missing(field) = error.problem {
            // Missing only because its value was at fault: told already.
            if removed.contains(field) {
                return None;
            }
        }
        let place = error.place.clone().unwrap_or_else(|| node.place.clone());
        let at = path_of(path, node, &rest, error.steps.iter().rev());
        faults.push(&place, &at, error.problem.message());
        if matches!(error.problem, Problem::Missing(_)) {
            return None;
        }
        if let Some(Step::Key(key)) = error.steps.first() {
            removed.insert(key.clone());
        }
        if !remove(&mut rest, error.steps.iter().rev()) {
            return None;
        }
    }
}

/// The path of the value at `steps` of `rest`, as it is in `whole`: items taken out still count.
fn path_of<'s>(
    path: &Path,
    whole: &Node,
    rest: &Node,
    steps: impl Iterator<Item = &'s Step>,
) -> Path {
    let (mut path, mut whole, mut rest) = (path.clone(), Some(whole), Some(rest));
    for step in steps {
        match step {
            Step::Key(key) => {
                path = path.key(key);
                whole = whole.and_then(|node| node.get(key));
                rest = rest.and_then(|node| node.get(key));
            }
            Step::Index(index) => {
                rest = rest.and_then(|node| items(node).get(*index));
                let place = rest.map(|item| &item.place);
                let items = whole.map_or(&[][..], items);
                let index = items.iter().position(|item| Some(&item.place) == place);
                path = path.index(index.expect("what is left was there before"));
                whole = index.and_then(|index| items.get(index));
            }
        }
    }
    path
}

fn items(node: &Node) -> &[Node] {
    match &node.content {
        Content::List(items) => items,
        Content::Null | Content::Scalar { .. } | Content::Map(_) => &[],
    }
}

/// Takes the value at `steps` out; false when that is the whole.
fn remove<'s>(node: &mut Node, mut steps: impl Iterator<Item = &'s Step> + Clone) -> bool {
    let Some(step) = steps.next() else {
        return false;
    };
    let is_last = steps.clone().next().is_none();
    match (&mut node.content, step) {
        (Content::Map(fields), Step::Key(key)) => {
            let Some(index) = fields.iter().position(|field| field.key == *key) else {
                return false;
            };
            if is_last {
                fields.remove(index);
                return true;
            }
            remove(&mut fields[index].value, steps)
        }
        (Content::List(items), Step::Index(index)) if *index < items.len() => {
            if is_last {
                items.remove(*index);
                return true;
            }
            remove(&mut items[*index], steps)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::yaml::parse::parse;

    #[derive(Debug, Deserialize, PartialEq, Eq, Default)]
    #[serde(default, deny_unknown_fields)]
    struct Sample {
        id: String,
        capacity: u32,
        on: bool,
        kind: Kind,
        inner: Inner,
        names: Vec<String>,
        may: Option<u16>,
    }

    #[derive(Debug, Deserialize, PartialEq, Eq, Default)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        #[default]
        Text,
        Json,
    }

    #[derive(Debug, Deserialize, PartialEq, Eq, Default)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        port: u16,
    }

    #[derive(Debug, Deserialize)]
    struct Needs {
        #[expect(dead_code, reason = "only its presence is tested")]
        id: u32,
    }

    fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
        let node = parse("f.yaml", text).expect("valid YAML");
        let mut faults = Faults::default();
        let value = section(&node, &Path::root().key("worker"), &mut faults);
        faults.or(value).map_err(|faults| faults.to_string())
    }

    #[test]
    fn values_are_read_and_defaults_stay() {
        let sample: Sample =
            read("id: 5\nkind: json\ninner: {port: 80}\nnames: [a]\nmay: ~\n").expect("no faults");
        let expected = Sample {
            id: "5".to_owned(),
            kind: Kind::Json,
            inner: Inner { port: 80 },
            names: vec!["a".to_owned()],
            ..Sample::default()
        };
        assert_eq!(sample, expected);
    }

    #[test]
    fn every_fault_is_found_in_one_go() {
        let text = "idd: x\ncapacity: many\non: yes\nkind: jsn\ninner:\n  port: 99999\n  prt: 1\n\
                    names: [a, [b], {}]\nmay: -1\n";
        let faults = read::<Sample>(text).expect_err("many faults");
        assert_eq!(
            faults,
            "f.yaml:1:1: worker.idd: unknown key; did you mean `id`?\n\
             f.yaml:2:11: worker.capacity: \"many\" where a whole number from 0 on belongs\n\
             f.yaml:3:5: worker.on: \"yes\" where true or false belongs\n\
             f.yaml:4:7: worker.kind: \"jsn\" is not known; did you mean `json`?\n\
             f.yaml:6:9: worker.inner.port: \"99999\" where a number from 0 to 65535 belongs\n\
             f.yaml:7:3: worker.inner.prt: unknown key; did you mean `port`?\n\
             f.yaml:8:12: worker.names[1]: a list where text belongs\n\
             f.yaml:8:17: worker.names[2]: a mapping where text belongs\n\
             f.yaml:9:6: worker.may: \"-1\" where a number from 0 to 65535 belongs\n\
             9 faults"
        );
    }

    #[test]
    fn what_is_missing_is_told_once() {
        let missing = read::<Needs>("{}").expect_err("missing");
        assert!(missing.contains("`id` is missing"), "{missing}");
        let wrong = read::<Needs>("id: x").expect_err("wrong");
        assert!(!wrong.contains("missing"), "{wrong}");
        assert!(wrong.contains("1 fault"), "{wrong}");
    }

    #[test]
    fn a_section_of_the_wrong_kind_is_one_fault() {
        let faults = read::<Sample>("[1, 2]").expect_err("a list");
        assert_eq!(
            faults,
            "f.yaml:1:1: worker: a list where a mapping belongs\n1 fault"
        );
    }
}
