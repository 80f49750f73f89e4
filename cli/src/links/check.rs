//! The checks that a controller makes of each thing by itself, made here too, since here the line is
//! known.

use kreplicator_model::spec;
use kreplicator_proto::{fault::FieldFault, v1};

use crate::yaml::{Content, Faults, Node, Path};

/// Steps of a message's path that the file leaves out.
const WRAPPERS: &[&str] = &["security", "selector", "pattern"];

/// Checks a cluster that was read from `node`.
pub(super) fn cluster(read: &v1::Cluster, node: &Node, path: &Path, faults: &mut Faults) {
    let found = spec::Cluster::try_from(read).err().unwrap_or_default();
    report(found, node, path, faults);
    let options = read.client_options.clone().into_iter().collect();
    for message in kreplicator_kafka::properties::check_client_options(&options) {
        let key = "client_options";
        let place = &node.get(key).unwrap_or(node).place;
        faults.push(place, &path.key(key), message);
    }
}

/// Checks a link that was read from `node`.
pub(super) fn link(read: &v1::Link, node: &Node, path: &Path, faults: &mut Faults) {
    let found = spec::Link::try_from(read).err().unwrap_or_default();
    report(found, node, path, faults);
}

/// Checks a subscription that was read from `node`.
pub(super) fn subscription(read: &v1::Subscription, node: &Node, path: &Path, faults: &mut Faults) {
    let found = spec::Subscription::try_from(read).err().unwrap_or_default();
    report(found, node, path, faults);
}

fn report(found: Vec<FieldFault>, node: &Node, path: &Path, faults: &mut Faults) {
    for fault in found {
        let place = &at(node, &fault.path).place;
        let steps = fault.path.split('.');
        let inner = steps.filter(|step| !WRAPPERS.contains(step));
        let path = inner
            .filter(|step| !step.is_empty())
            .fold(path.clone(), |path, step| path.key(step));
        faults.push(place, &path, fault.message);
    }
}

/// The innermost node on the way of a message's path. Steps that the file does not have are passed
/// over.
fn at<'n>(mut node: &'n Node, path: &str) -> &'n Node {
    let mut rest = path;
    while !rest.is_empty() {
        // A key of a map may itself hold dots.
        if let Some(found) = node.get(rest) {
            return found;
        }
        let (step, after) = rest.split_once('.').unwrap_or((rest, ""));
        let (key, index) = match step.trim_end_matches(']').split_once('[') {
            Some((key, index)) => (key, index.parse::<usize>().ok()),
            None => (step, None),
        };
        node = node.get(key).unwrap_or(node);
        if let (Content::List(items), Some(index)) = (&node.content, index) {
            node = items.get(index).unwrap_or(node);
        }
        rest = after;
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse::parse;

    #[test]
    fn a_path_of_a_message_leads_to_its_line() {
        let text = "tls: {ca_file: x}\nclient_options:\n  linger.ms: 5\nservers:\n  - a\n  - b\n";
        let node = parse("f.yaml", text).expect("valid");
        let place = |path| at(&node, path).place.to_string();
        assert_eq!(place("security.tls.ca_file"), "f.yaml:1:16");
        assert_eq!(place("client_options.linger.ms"), "f.yaml:3:14");
        assert_eq!(place("servers[1]"), "f.yaml:6:5");
        assert_eq!(place("elsewhere"), "f.yaml:1:1");
    }
}
