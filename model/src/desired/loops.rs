//! Topics that would be copied round and round (C074, C075).
//!
//! A loop is a round of links on which a topic comes back under its own name and is picked up again.
//! Where names change on the way round, by a prefix say, the copy is another topic; it is known by
//! its recorded origin when it runs and is not copied back, see [`crate::resolve`]. Where the name
//! stays the same there is nothing to tell the copy by, so such rounds are refused here.
//!
//! Two kinds of names are followed:
//! - those that are written down, in exact subscriptions and renames, one by one;
//! - those that only patterns mean, and that no link on the round renames, by asking whether the
//!   patterns have a name in common.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Fault, FaultKind, Identities, LinkView};
use crate::{
    ids::{ClusterId, LinkId, TopicName},
    overlap::{self, Overlap},
    selector,
    spec::Selector,
};

/// Longest round that is looked for. Longer ones are stopped when they run, by recorded origin.
const LINKS_MAX: usize = 8;
/// Most rounds that are reported at once.
const FOUND_MAX: usize = 20;
/// Most places that one written name is followed to; it has as many as there are clusters unless
/// prefixes make new names of it.
const PLACES_MAX: usize = 1_000;
/// Most combinations of patterns that are compared, at some tenths of a millisecond each.
const COMPARISONS_MAX: usize = 5_000;

pub(super) fn check(
    views: &BTreeMap<&LinkId, LinkView<'_>>,
    identities: &Identities,
    faults: &mut Vec<Fault>,
) {
    let mut search = Search::new(views, identities);
    search.follow_written_names();
    search.follow_patterns();
    for (links, example) in search.found {
        faults.push(describe(&links, &example));
    }
}

fn describe(links: &BTreeSet<&LinkId>, example: &Overlap) -> Fault {
    let names: Vec<&str> = links.iter().map(|link| link.as_str()).collect();
    let (last, first) = names.split_last().expect("a round has links");
    let would = match example {
        Overlap::Example(topic) => format!("would copy topic {topic} round in a loop"),
        Overlap::Disjoint | Overlap::Unknown => {
            "might copy topics round in a loop, which their patterns do not rule out".to_owned()
        }
    };
    Fault {
        subject: format!("link {}", names[0]),
        kind: FaultKind::Loop,
        message: format!(
            "links {} and {last} {would}; give each of them a prefix, or exclude topics so that none \
             is copied both ways",
            first.join(", ")
        ),
    }
}

struct Search<'a> {
    /// By source cluster.
    from: BTreeMap<&'a ClusterId, Vec<&'a LinkView<'a>>>,
    identities: &'a Identities,
    /// Links of each round found, with a topic that goes round.
    found: BTreeMap<BTreeSet<&'a LinkId>, Overlap>,
}

/// A place that a written name was followed to.
struct Place<'a> {
    cluster: &'a ClusterId,
    name: TopicName,
    /// The link that led here, and the place before. None: the start.
    by: Option<(&'a LinkView<'a>, usize)>,
}

type Path<'a> = Vec<(&'a LinkView<'a>, &'a Selector)>;

impl<'a> Search<'a> {
    fn new(views: &'a BTreeMap<&LinkId, LinkView<'a>>, identities: &'a Identities) -> Self {
        let mut from: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for view in views.values() {
            let source = identities.get(&view.link.source);
            from.entry(source).or_default().push(view);
        }
        Self {
            from,
            identities,
            found: BTreeMap::new(),
        }
    }

    fn source_of(&self, view: &'a LinkView<'a>) -> &'a ClusterId {
        self.identities.get(&view.link.source)
    }

    fn target_of(&self, view: &'a LinkView<'a>) -> &'a ClusterId {
        self.identities.get(&view.link.target)
    }

    fn links_from(&self, cluster: &ClusterId) -> Vec<&'a LinkView<'a>> {
        self.from.get(cluster).cloned().unwrap_or_default()
    }

    fn all_links(&self) -> Vec<&'a LinkView<'a>> {
        self.from.values().flatten().copied().collect()
    }

    fn note(&mut self, links: BTreeSet<&'a LinkId>, example: Overlap) {
        // A link from a cluster to itself is a fault of its own.
        if links.len() > 1 {
            self.found.entry(links).or_insert(example);
        }
    }

    // --- names that are written down

    fn follow_written_names(&mut self) {
        for view in self.all_links() {
            let renamed = view.link.naming.rename.keys();
            let names: BTreeSet<&TopicName> = view.exact.iter().copied().chain(renamed).collect();
            for name in names {
                if self.found.len() == FOUND_MAX {
                    return;
                }
                if view.selects(name) && !selector::is_ours(name) {
                    self.follow_name(self.source_of(view), name);
                }
            }
        }
    }

    /// Follows a name from cluster to cluster, nearest first, until it is back where it started.
    fn follow_name(&mut self, cluster: &'a ClusterId, name: &TopicName) {
        let mut places = vec![Place {
            cluster,
            name: name.clone(),
            by: None,
        }];
        let mut seen = BTreeSet::new();
        let mut at = 0;
        while at < places.len() && places.len() < PLACES_MAX {
            for view in self.links_from(places[at].cluster) {
                let here = &places[at].name;
                let Some(next) = view
                    .link
                    .naming
                    .target_of(here)
                    .ok()
                    .filter(|_| view.selects(here))
                else {
                    continue;
                };
                let target = self.target_of(view);
                let is_back = target == cluster && next == *name;
                if seen.insert((target, next.clone())) {
                    places.push(Place {
                        cluster: target,
                        name: next.clone(),
                        by: Some((view, at)),
                    });
                }
                if is_back {
                    let links = links_to(&places, places.len() - 1);
                    self.note(links, Overlap::Example(next));
                    return;
                }
            }
            at += 1;
        }
    }

    // --- names that only patterns mean

    /// Lengthens paths of links whose patterns have a name in common, shortest first.
    fn follow_patterns(&mut self) {
        let mut paths: VecDeque<Path<'a>> = VecDeque::new();
        for view in self.all_links() {
            paths.extend(keeping_names(view).map(|selector| vec![(view, selector)]));
        }
        let mut comparisons = 0;
        while let Some(path) = paths.pop_front() {
            let (first, last) = (path[0].0, path[path.len() - 1].0);
            let links: BTreeSet<&LinkId> = path.iter().map(|(view, _)| &view.link.id).collect();
            for next in self.links_from(self.target_of(last)) {
                // Each round is looked at once, from its first link on.
                if links.contains(&next.link.id) || next.link.id < first.link.id {
                    continue;
                }
                for selector in keeping_names(next) {
                    if comparisons == COMPARISONS_MAX || self.found.len() == FOUND_MAX {
                        return;
                    }
                    comparisons += 1;
                    let longer = [path.as_slice(), &[(next, selector)]].concat();
                    let common = common_name(&longer);
                    if !common.is_possible() {
                        continue;
                    }
                    if self.target_of(next) == self.source_of(first) {
                        let mut links = links.clone();
                        links.insert(&next.link.id);
                        self.note(links, common);
                    } else if longer.len() < LINKS_MAX {
                        paths.push_back(longer);
                    }
                }
            }
        }
    }
}

/// The links on the way to a place.
fn links_to<'a>(places: &[Place<'a>], mut at: usize) -> BTreeSet<&'a LinkId> {
    let mut links = BTreeSet::new();
    while let Some((view, before)) = places[at].by {
        links.insert(&view.link.id);
        at = before;
    }
    links
}

/// The patterns of a link that gives topics their own names, unless they are renamed.
fn keeping_names<'a>(view: &'a LinkView<'a>) -> impl Iterator<Item = &'a Selector> {
    let keeps = view.link.naming.prefix.is_empty();
    let patterns = view.patterns.iter().filter(move |_| keeps);
    patterns.map(|(selector, _)| *selector)
}

/// A name that all the patterns mean and that no link on the way renames.
fn common_name(path: &[(&LinkView<'_>, &Selector)]) -> Overlap {
    let selectors: Vec<&Selector> = path.iter().map(|(_, selector)| *selector).collect();
    let renamed = path
        .iter()
        .flat_map(|(view, _)| view.link.naming.rename.keys());
    overlap::except(&selectors, &renamed.collect())
}
