//! Where each thing was declared.

use std::collections::BTreeMap;

use crate::yaml::Place;

/// Subject (`cluster east`, `link east-west`, `subscription east-west/orders`) to place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Places(BTreeMap<String, Place>);

impl Places {
    /// Notes a place; false when the subject has one already.
    pub(super) fn declare(&mut self, subject: String, place: &Place) -> bool {
        use std::collections::btree_map::Entry;
        match self.0.entry(subject) {
            Entry::Vacant(entry) => {
                entry.insert(place.clone());
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Where a subject was declared.
    pub(crate) fn of(&self, subject: &str) -> Option<&Place> {
        self.0.get(subject)
    }

    /// Notes where the next item of a list of the request was declared.
    pub(super) fn declare_item(&mut self, list: &str, index: usize, place: &Place) {
        self.declare(format!("{list}[{index}]"), place);
    }

    /// Puts the place in front of each line of a server's answer that begins with a subject of the
    /// file: `link a-b: unknown cluster …` becomes `links.yaml:7:3: link a-b: unknown cluster …`,
    /// and so do faults of the request's fields, `links[2].source: …`.
    pub(crate) fn locate(&self, message: &str) -> String {
        let lines = message.lines().map(|line| {
            // The subject ends where the message begins; an id may itself hold ": ".
            let ends = line.match_indices(": ").map(|(index, _)| index);
            let subject = ends.filter_map(|end| self.of(line.get(..end)?)).last();
            let item = line.find(']').and_then(|end| self.of(line.get(..=end)?));
            match subject.or(item) {
                Some(place) => format!("{place}: {line}"),
                None => line.to_owned(),
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn refusals_of_the_server_get_lines() {
        let mut places = Places::default();
        let place = |line| Place::File {
            name: Arc::from("links.yaml"),
            line,
            column: 3,
        };
        places.declare("link a-b".to_owned(), &place(7));
        places.declare("subscription a-b//x: y/".to_owned(), &place(9));
        places.declare_item("links", 2, &place(5));
        let message = "2 faults\nlinks[2].source: is missing\nlink a-b: unknown cluster \"c\"\n\
                       subscription a-b//x: y/: bad pattern\nlink z: unknown";
        assert_eq!(
            places.locate(message),
            "2 faults\nlinks.yaml:5:3: links[2].source: is missing\nlinks.yaml:7:3: link a-b: unknown cluster \"c\"\n\
             links.yaml:9:3: subscription a-b//x: y/: bad pattern\nlink z: unknown"
        );
    }
}
