//! Automata of expressions, within a limit of bytes.

use std::sync::OnceLock;

use regex_automata::{
    MatchKind,
    hybrid::dfa,
    meta,
    nfa::thompson::{self, NFA},
};

use super::{COMPILED_BYTES_MAX, expression::Expression};

/// Most bytes of one lazy automaton's states.
const CACHE_BYTES_MAX: usize = 4 << 20;

/// An expression made ready to be asked.
#[derive(Debug)]
pub(crate) struct Compiled {
    nfa: NFA,
    regex: meta::Regex,
    /// For walking it letter by letter; made when first asked for. None: beyond the limits.
    dfa: OnceLock<Option<dfa::DFA>>,
}

/// It needs more bytes than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Compiled {
    /// Compiles an expression into at most so many bytes.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub(crate) fn new(expression: &Expression, bytes_max: usize) -> Result<Self, TooLarge> {
        let whole = expression.whole();
        let config = thompson::Config::new()
            .utf8(false)
            .which_captures(thompson::WhichCaptures::None)
            .nfa_size_limit(Some(bytes_max));
        let nfa = thompson::Compiler::new()
            .configure(config)
            .build_from_hir(&whole)
            .map_err(|_| TooLarge)?;
        let config = meta::Config::new()
            .utf8_empty(false)
            .which_captures(thompson::WhichCaptures::None)
            // It makes one to be read backwards as well, whose bytes are not the same.
            .nfa_size_limit(Some(4 * COMPILED_BYTES_MAX));
        let regex = meta::Builder::new()
            .configure(config)
            .build_from_hir(&whole)
            .map_err(|_| TooLarge)?;
        Ok(Self {
            nfa,
            regex,
            dfa: OnceLock::new(),
        })
    }

    /// Whether the whole name matches.
    pub(crate) fn is_match(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }

    /// Bytes of the automaton.
    pub(crate) fn bytes(&self) -> usize {
        self.nfa.memory_usage()
    }

    /// The automaton that can be walked letter by letter. None: beyond the limits.
    pub(crate) fn dfa(&self) -> Option<&dfa::DFA> {
        let made = self.dfa.get_or_init(|| {
            let config = dfa::Config::new()
                .match_kind(MatchKind::All)
                .cache_capacity(CACHE_BYTES_MAX)
                // States are kept by their number, so they may never be thrown out.
                .minimum_cache_clear_count(Some(0));
            let mut builder = dfa::DFA::builder();
            builder.configure(config);
            builder.build_from_nfa(self.nfa.clone()).ok()
        });
        made.as_ref()
    }
}
