//! Whether selectors can mean the same topic, and if so, which one for example.
//!
//! An exact name is simply asked for. Patterns are run side by side as automata over the letters that
//! topic names are made of: a name that all of them accept is an example, and when every name has
//! been tried in this way there is none. So `.*-eu` and `.*-us` are known to be disjoint, which
//! comparing prefixes could not tell.

use std::collections::BTreeSet;

use regex_automata::{
    Anchored, Input,
    hybrid::{
        LazyStateID,
        dfa::{Cache, DFA},
    },
};

use crate::{
    ids::TopicName,
    selector::{self, COMPILED_BYTES_MAX, Compiled, Expression, Matcher},
};

/// Most combined states that are looked at before giving up; a guess that bounds the time to well
/// under a second.
const STATES_MAX: usize = 20_000;
/// Kafka's limit on names.
const NAME_BYTES_MAX: usize = 249;
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
#[cfg(test)]
pub(crate) fn of(selectors: &[&Matcher]) -> Overlap {
    except(selectors, &BTreeSet::new())
}

/// Looks for a topic that every one of the selectors means and that is none of `others`.
#[must_use]
pub fn except(selectors: &[&Matcher], others: &BTreeSet<&TopicName>) -> Overlap {
    match selectors.iter().find_map(|selector| selector.exact()) {
        Some(topic) => of_topic(topic, selectors, others),
        None => of_patterns(selectors, others).unwrap_or(Overlap::Unknown),
    }
}

fn of_topic(topic: &TopicName, selectors: &[&Matcher], others: &BTreeSet<&TopicName>) -> Overlap {
    let is_meant = selectors.iter().all(|selector| selector.matches(topic));
    if is_meant && !others.contains(topic) {
        Overlap::Example(topic.clone())
    } else {
        Overlap::Disjoint
    }
}

fn of_patterns(selectors: &[&Matcher], others: &BTreeSet<&TopicName>) -> Result<Overlap, GaveUp> {
    let compile =
        |expression: &Expression| Compiled::new(expression, COMPILED_BYTES_MAX).map_err(|_| GaveUp);
    let parse = |text| Expression::parse(text).expect("constant, and tested");
    // Names that no pattern means, names that are no names, and those that do not count.
    let mut not = vec![parse(selector::INTERNAL), parse(r"\.{0,2}")];
    if !others.is_empty() {
        not.push(Expression::names(others.iter().map(|name| name.as_str())));
    }
    let not = compile(&Expression::any_of(&not))?;
    let mut automata = Vec::with_capacity(2 * selectors.len() + 1);
    for pattern in selectors.iter().filter_map(|selector| selector.automata()) {
        automata.push(Automaton::new(&pattern.include, true)?);
        if let Some(exclude) = &pattern.exclude {
            automata.push(Automaton::new(exclude, false)?);
        }
    }
    automata.push(Automaton::new(&not, false)?);
    Search::new(automata).run()
}

/// One pattern at work.
struct Automaton<'a> {
    dfa: &'a DFA,
    cache: Cache,
    /// Whether an example must match it, or must not.
    must_match: bool,
}

/// The automaton did not fit into its limits.
struct GaveUp;

impl<'a> Automaton<'a> {
    fn new(compiled: &'a Compiled, must_match: bool) -> Result<Self, GaveUp> {
        let dfa = compiled.dfa().ok_or(GaveUp)?;
        Ok(Self {
            dfa,
            cache: dfa.create_cache(),
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
struct Search<'a> {
    automata: Vec<Automaton<'a>>,
    letters: Vec<u8>,
    steps: Vec<Step>,
    seen: BTreeSet<Vec<LazyStateID>>,
}

impl<'a> Search<'a> {
    fn new(automata: Vec<Automaton<'a>>) -> Self {
        let letters = telling_letters(&automata);
        Self {
            automata,
            letters,
            steps: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    fn run(mut self) -> Result<Overlap, GaveUp> {
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

/// One letter for each group that no automaton tells apart; letters first so that examples read well.
fn telling_letters(automata: &[Automaton<'_>]) -> Vec<u8> {
    let mut readable: Vec<u8> = selector::letters().collect();
    readable.sort_by_key(|letter| {
        let rank = match letter {
            b'a'..=b'z' => 0,
            b'A'..=b'Z' => 1,
            b'0'..=b'9' => 2,
            _ => 3,
        };
        (rank, *letter)
    });
    let mut told: BTreeSet<Vec<u8>> = BTreeSet::new();
    readable.retain(|letter| {
        let classes = automata
            .iter()
            .map(|automaton| automaton.dfa.byte_classes().get(*letter));
        told.insert(classes.collect())
    });
    readable
}

#[cfg(test)]
#[path = "overlap_tests.rs"]
mod tests;
