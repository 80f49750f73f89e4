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
    selector::{self, Matcher},
};

/// Longest round that is looked for. Longer ones are stopped when they run, by recorded origin.
const LINKS_MAX: usize = 8;
/// Most rounds that are reported at once.
const FOUND_MAX: usize = 20;
/// Most places that one written name is followed to; it has as many as there are clusters unless
/// prefixes make new names of it.
const PLACES_MAX: usize = 1_000;
/// Most paths of patterns that are lengthened.
const PATHS_MAX: usize = 20_000;

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

type Path<'a> = Vec<Keeper<'a>>;

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
                // One round tells what is wrong with a link; the others show once it is mended.
                let is_told = self.found.keys().any(|links| links.contains(&view.link.id));
                if is_told || self.found.len() == FOUND_MAX {
                    break;
                }
                if view.selects(name) && !selector::is_ours(name) {
                    self.follow_name(view, name);
                }
            }
        }
    }

    /// Follows a name over `first` and on from cluster to cluster, nearest first, until it is back
    /// where it started.
    fn follow_name(&mut self, first: &'a LinkView<'a>, name: &TopicName) {
        let cluster = self.source_of(first);
        let mut places = vec![Place {
            cluster,
            name: name.clone(),
            by: None,
        }];
        let mut seen = BTreeSet::new();
        let mut at = 0;
        while at < places.len() && places.len() < PLACES_MAX {
            let links = if at == 0 {
                vec![first]
            } else {
                self.links_from(places[at].cluster)
            };
            for view in links {
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

    /// Lengthens paths of links whose patterns overlap pair by pair, shortest first; those that close
    /// are asked for a name that all have in common.
    fn follow_patterns(&mut self) {
        let mut overlaps = Overlaps::default();
        let mut paths: VecDeque<Path<'a>> = VecDeque::new();
        for view in self.all_links() {
            paths.extend(keeping_names(view).map(|keeper| vec![keeper]));
        }
        for _ in 0..PATHS_MAX {
            let Some(path) = paths.pop_front() else {
                return;
            };
            let (first, last) = (path[0].view, path[path.len() - 1].view);
            let links: BTreeSet<&LinkId> = path.iter().map(|keeper| &keeper.view.link.id).collect();
            for next in self.links_from(self.target_of(last)) {
                // Each round is looked at once, from its first link on.
                if links.contains(&next.link.id) || next.link.id < first.link.id {
                    continue;
                }
                let closes = self.target_of(next) == self.source_of(first);
                for keeper in keeping_names(next) {
                    if self.found.len() == FOUND_MAX {
                        return;
                    }
                    if !path
                        .iter()
                        .all(|before| overlaps.may_overlap(before, &keeper))
                    {
                        continue;
                    }
                    let longer = [path.as_slice(), &[keeper]].concat();
                    if closes {
                        self.note_common(&longer);
                    } else if longer.len() < LINKS_MAX {
                        paths.push_back(longer);
                    }
                }
            }
        }
    }

    fn note_common(&mut self, path: &[Keeper<'a>]) {
        let links: BTreeSet<&LinkId> = path.iter().map(|keeper| &keeper.view.link.id).collect();
        if self.found.contains_key(&links) {
            return;
        }
        let common = common_name(path);
        if common.is_possible() {
            self.note(links, common);
        }
    }
}

/// Which patterns overlap, each pair asked once.
#[derive(Default)]
struct Overlaps<'a> {
    known: BTreeMap<[(&'a LinkId, usize); 2], bool>,
}

impl<'a> Overlaps<'a> {
    fn may_overlap(&mut self, a: &Keeper<'a>, b: &Keeper<'a>) -> bool {
        let key = [a, b].map(|keeper| (&keeper.view.link.id, keeper.number));
        let pair = || common_name(&[*a, *b]).is_possible();
        *self.known.entry(key).or_insert_with(pair)
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

/// A pattern of a link that gives topics their own names, unless they are renamed.
#[derive(Clone, Copy)]
struct Keeper<'a> {
    view: &'a LinkView<'a>,
    /// Its place among the link's patterns.
    number: usize,
    matcher: &'a Matcher,
}

fn keeping_names<'a>(view: &'a LinkView<'a>) -> impl Iterator<Item = Keeper<'a>> {
    let keeps = view.link.naming.prefix.is_empty();
    let patterns = view.patterns.iter().enumerate().filter(move |_| keeps);
    patterns.map(move |(number, matcher)| Keeper {
        view,
        number,
        matcher,
    })
}

/// A name that all the patterns mean and that no link on the way renames.
fn common_name(path: &[Keeper<'_>]) -> Overlap {
    let matchers: Vec<&Matcher> = path.iter().map(|keeper| keeper.matcher).collect();
    let renamed = path
        .iter()
        .flat_map(|keeper| keeper.view.link.naming.rename.keys());
    overlap::except(&matchers, &renamed.collect())
}
