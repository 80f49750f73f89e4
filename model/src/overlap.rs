//! Whether selectors can mean the same topic, and if so, which one for example.
//!
//! An exact name is simply asked for. Patterns are run side by side as automata over the letters that
//! topic names are made of: a name that all of them accept is an example, and when every name has
//! been tried in this way there is none. So `.*-eu` and `.*-us` are known to be disjoint, which
//! comparing prefixes could not tell.

use std::collections::{BTreeMap, BTreeSet};

use regex_automata::{
    Anchored, Input, MatchKind,
    hybrid::{
        LazyStateID,
        dfa::{Cache, Config, DFA},
    },
    nfa::thompson,
};

use crate::{
    ids::TopicName,
    selector::{self, COMPILED_BYTES_MAX, Matcher},
    spec::{Pattern, Selector},
};

/// Most combined states that are looked at before giving up; a guess that bounds the time to well
/// under a second.
const STATES_MAX: usize = 20_000;
/// Most bytes of one automaton's states.
const CACHE_BYTES_MAX: usize = 4 << 20;
/// Kafka's limit on names.
const NAME_BYTES_MAX: usize = 249;
/// What topic names are made of, letters first so that examples read well.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

/// What is known about the topics that several selectors have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlap {
    /// Proven: there is none.
    Disjoint,
    /// All of them mean this topic.
    Example(TopicName),
    /// Not decided within the limits.
    Unknown,
}

impl Overlap {
    /// Whether a common topic cannot be ruled out.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        !matches!(self, Self::Disjoint)
    }
}

/// Looks for a topic that every one of the selectors means.
#[must_use]
pub fn of(selectors: &[&Selector]) -> Overlap {
    except(selectors, &BTreeSet::new())
}

/// Looks for a topic that every one of the selectors means and that is none of `others`.
#[must_use]
pub fn except(selectors: &[&Selector], others: &BTreeSet<&TopicName>) -> Overlap {
    let mut exact = None;
    let mut patterns = Vec::new();
    for selector in selectors {
        match selector {
            Selector::Topic(topic) => exact = Some(topic),
            Selector::Pattern(pattern) => patterns.push(pattern),
        }
    }
    match exact {
        Some(topic) => of_topic(topic, selectors, others),
        None => Search::new(&patterns, others).map_or(Overlap::Unknown, Search::run),
    }
}

fn of_topic(topic: &TopicName, selectors: &[&Selector], others: &BTreeSet<&TopicName>) -> Overlap {
    for selector in selectors {
        match Matcher::compile(selector) {
            Ok(matcher) if matcher.matches(topic) => {}
            Ok(_) => return Overlap::Disjoint,
            Err(_) => return Overlap::Unknown,
        }
    }
    if others.contains(topic) {
        return Overlap::Disjoint;
    }
    Overlap::Example(topic.clone())
}

/// One pattern at work.
struct Automaton {
    dfa: DFA,
    cache: Cache,
    /// Whether an example must match it, or must not.
    must_match: bool,
}

/// The automaton did not fit into its limits.
struct GaveUp;

impl Automaton {
    fn new(pattern: &str, must_match: bool) -> Option<Self> {
        let config = Config::new()
            .match_kind(MatchKind::All)
            .unicode_word_boundary(true)
            .cache_capacity(CACHE_BYTES_MAX)
            // States are kept by their number, so they may never be thrown out.
            .minimum_cache_clear_count(Some(0));
        let limits = thompson::Config::new().nfa_size_limit(Some(COMPILED_BYTES_MAX));
        let dfa = DFA::builder()
            .configure(config)
            .thompson(limits)
            .build(&selector::anchored(pattern))
            .ok()?;
        let cache = dfa.create_cache();
        Some(Self {
            dfa,
            cache,
            must_match,
        })
    }

    fn start(&mut self) -> Result<LazyStateID, GaveUp> {
        let input = Input::new("").anchored(Anchored::Yes);
        let start = self.dfa.start_state_forward(&mut self.cache, &input);
        start.map_err(|_| GaveUp)
    }

    fn next(&mut self, state: LazyStateID, byte: u8) -> Result<LazyStateID, GaveUp> {
        let next = self.dfa.next_state(&mut self.cache, state, byte);
        next.ok().filter(|next| !next.is_quit()).ok_or(GaveUp)
    }

    /// Whether the name read so far is one that this automaton agrees to.
    fn agrees(&mut self, state: LazyStateID) -> Result<bool, GaveUp> {
        let end = self.dfa.next_eoi_state(&mut self.cache, state);
        let end = end.map_err(|_| GaveUp)?;
        Ok(end.is_match() == self.must_match)
    }
}

/// A way to get to a combined state: the state before, and the letter.
struct Step {
    states: Vec<LazyStateID>,
    from: Option<(usize, u8)>,
    length: usize,
}

/// All automata side by side, breadth first, so that examples are short.
struct Search {
    automata: Vec<Automaton>,
    letters: Vec<u8>,
    steps: Vec<Step>,
    seen: BTreeSet<Vec<LazyStateID>>,
}

impl Search {
    fn new(patterns: &[&Pattern], others: &BTreeSet<&TopicName>) -> Option<Self> {
        let mut automata = Vec::new();
        for pattern in patterns {
            automata.push(Automaton::new(&pattern.include, true)?);
            for exclude in &pattern.exclude {
                automata.push(Automaton::new(exclude, false)?);
            }
        }
        // Names that no pattern means, and names that are no names.
        automata.push(Automaton::new(selector::INTERNAL, false)?);
        automata.push(Automaton::new(r"\.{0,2}", false)?);
        if !others.is_empty() {
            let names: Vec<String> = others
                .iter()
                .map(|name| regex::escape(name.as_str()))
                .collect();
            automata.push(Automaton::new(&names.join("|"), false)?);
        }
        let letters = telling_letters(&automata);
        Some(Self {
            automata,
            letters,
            steps: Vec::new(),
            seen: BTreeSet::new(),
        })
    }

    fn run(mut self) -> Overlap {
        self.search().unwrap_or(Overlap::Unknown)
    }

    fn search(&mut self) -> Result<Overlap, GaveUp> {
        let start: Result<Vec<_>, _> = self.automata.iter_mut().map(Automaton::start).collect();
        self.reach(start?, None, 0);
        let mut at = 0;
        while at < self.steps.len() {
            if self.is_example(at)? {
                return Ok(self.spell(at));
            }
            self.go_on(at)?;
            if self.steps.len() > STATES_MAX {
                return Err(GaveUp);
            }
            at += 1;
        }
        Ok(Overlap::Disjoint)
    }

    fn is_example(&mut self, at: usize) -> Result<bool, GaveUp> {
        let states = &self.steps[at].states;
        for (automaton, state) in self.automata.iter_mut().zip(states) {
            if !automaton.agrees(*state)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads one more letter in every way that may still lead to an example.
    fn go_on(&mut self, at: usize) -> Result<(), GaveUp> {
        let length = self.steps[at].length + 1;
        if length > NAME_BYTES_MAX {
            return Ok(());
        }
        for index in 0..self.letters.len() {
            let letter = self.letters[index];
            let mut states = Vec::with_capacity(self.automata.len());
            for (number, automaton) in self.automata.iter_mut().enumerate() {
                let next = automaton.next(self.steps[at].states[number], letter)?;
                if next.is_dead() && automaton.must_match {
                    break;
                }
                states.push(next);
            }
            if states.len() == self.automata.len() {
                self.reach(states, Some((at, letter)), length);
            }
        }
        Ok(())
    }

    fn reach(&mut self, states: Vec<LazyStateID>, from: Option<(usize, u8)>, length: usize) {
        if self.seen.insert(states.clone()) {
            self.steps.push(Step {
                states,
                from,
                length,
            });
        }
    }

    /// The name that led to a state.
    fn spell(&self, at: usize) -> Overlap {
        let mut letters = Vec::new();
        let mut at = at;
        while let Some((before, letter)) = self.steps[at].from {
            letters.push(char::from(letter));
            at = before;
        }
        let name: String = letters.into_iter().rev().collect();
        let topic = TopicName::new(name).expect("built from letters that topic names may hold");
        Overlap::Example(topic)
    }
}

/// One letter for each group that no automaton tells apart.
fn telling_letters(automata: &[Automaton]) -> Vec<u8> {
    let mut groups: BTreeMap<Vec<u8>, u8> = BTreeMap::new();
    for &letter in LETTERS {
        let classes = automata
            .iter()
            .map(|automaton| automaton.dfa.byte_classes().get(letter));
        groups.entry(classes.collect()).or_insert(letter);
    }
    LETTERS
        .iter()
        .copied()
        .filter(|letter| groups.values().any(|first| first == letter))
        .collect()
}

#[cfg(test)]
#[path = "overlap_tests.rs"]
mod tests;
