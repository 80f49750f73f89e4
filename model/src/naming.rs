//! What a topic is called on the target: its entry in `rename`, else the prefix and its name.

use crate::{
    ids::{NameError, TopicName},
    spec::Naming,
};

impl Naming {
    /// The target's name of a source topic.
    ///
    /// # Errors
    /// [`NameError`] when the prefix makes it a name that Kafka does not allow.
    pub fn target_of(&self, source: &TopicName) -> Result<TopicName, NameError> {
        if let Some(target) = self.rename.get(source) {
            return Ok(target.clone());
        }
        if self.prefix.is_empty() {
            return Ok(source.clone());
        }
        TopicName::new(format!("{}{source}", self.prefix))
    }

    /// Pairs of source topics that `rename` gives the same target name, each pair once, in order.
    #[must_use]
    pub fn rename_clashes(&self) -> Vec<RenameClash> {
        let mut first_by_target = std::collections::BTreeMap::new();
        let mut clashes = Vec::new();
        for (source, target) in &self.rename {
            match first_by_target.entry(target) {
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(source);
                }
                std::collections::btree_map::Entry::Occupied(first) => clashes.push(RenameClash {
                    first: (*first.get()).clone(),
                    second: source.clone(),
                    target: target.clone(),
                }),
            }
        }
        clashes
    }
}

/// Two source topics that would be written to one target topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenameClash {
    /// The source topic that comes first by name.
    pub first: TopicName,
    /// The other one.
    pub second: TopicName,
    /// The target name of both.
    pub target: TopicName,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> TopicName {
        TopicName::new(name).expect("legal")
    }

    fn naming(prefix: &str, rename: &[(&str, &str)]) -> Naming {
        Naming {
            prefix: prefix.to_owned(),
            rename: rename.iter().map(|(s, t)| (topic(s), topic(t))).collect(),
        }
    }

    #[test]
    fn rename_goes_before_prefix_and_prefix_before_identity() {
        let naming = naming("dc1.", &[("orders", "sales")]);
        assert_eq!(naming.target_of(&topic("orders")), Ok(topic("sales")));
        assert_eq!(naming.target_of(&topic("clicks")), Ok(topic("dc1.clicks")));
        let identity = Naming::default();
        assert_eq!(identity.target_of(&topic("orders")), Ok(topic("orders")));
    }

    #[test]
    fn a_prefix_may_make_a_name_too_long() {
        let long = topic(&"x".repeat(249));
        let fault = naming("a.", &[])
            .target_of(&long)
            .expect_err("250 is too long");
        assert!(fault.to_string().contains("249"), "{fault}");
    }

    #[test]
    fn two_renames_to_one_target_clash() {
        let naming = naming("", &[("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")]);
        let pairs: Vec<_> = naming
            .rename_clashes()
            .into_iter()
            .map(|clash| (clash.first.to_string(), clash.second.to_string()))
            .collect();
        let expected = [("a", "c"), ("a", "d")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(pairs, expected);
    }
}
