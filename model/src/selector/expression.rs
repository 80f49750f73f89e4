//! One regular expression over topic names.
//!
//! Topic names are made of 65 ASCII letters, while `\w` alone has 140,000 in Unicode and takes
//! milliseconds to compile. So an expression is parsed as written, with all of Unicode, and then cut
//! down to the letters that can occur: what it says of topic names stays the same, and its automaton is
//! small.

use regex_syntax::hir::{
    Capture, Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind,
    Look, Repetition,
};

use super::{PATTERN_BYTES_MAX, PatternError, fault};

/// What topic names are made of: ranges whose both ends belong to them.
const LETTERS: [(u8, u8); 5] = [
    (b'-', b'.'),
    (b'0', b'9'),
    (b'A', b'Z'),
    (b'_', b'_'),
    (b'a', b'z'),
];

/// A legal expression, not compiled yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expression(Hir);

impl Expression {
    /// Reads one expression. It is read alone: text such as `a)|(b` is none, though it would become one
    /// between brackets.
    ///
    /// # Errors
    /// [`PatternError`] naming the expression.
    pub(crate) fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(fault(text, "is empty; use \".*\" for every topic"));
        }
        if text.len() > PATTERN_BYTES_MAX {
            let shown: String = text.chars().take(40).collect();
            return Err(fault(
                &format!("{shown}…"),
                format!("is longer than {PATTERN_BYTES_MAX} bytes; split it"),
            ));
        }
        let parsed = regex_syntax::parse(text).map_err(|error| fault(text, explain(&error)))?;
        Ok(Self(cut(&parsed)))
    }

    /// Matches whatever one of the expressions matches.
    pub(crate) fn any_of(expressions: &[Self]) -> Self {
        let all = expressions.iter().map(|expression| expression.0.clone());
        Self(Hir::alternation(all.collect()))
    }

    /// Matches these names.
    pub(crate) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter().map(|name| Hir::literal(name.as_bytes()));
        Self(Hir::alternation(names.collect()))
    }

    /// The expression for whole names.
    pub(crate) fn whole(&self) -> Hir {
        let (start, end) = (Hir::look(Look::Start), Hir::look(Look::End));
        Hir::concat(vec![start, self.0.clone(), end])
    }
}

/// Every letter that a topic name may hold.
pub(crate) fn letters() -> impl Iterator<Item = u8> + Clone {
    LETTERS.into_iter().flat_map(|(first, last)| first..=last)
}

/// The same expression over texts that hold nothing but letters of topic names. As deep as the
/// parser lets expressions be nested: 250 levels.
fn cut(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => {
            let is_letter = |byte: &u8| letters().any(|letter| letter == *byte);
            if literal.0.iter().all(is_letter) {
                hir.clone()
            } else {
                Hir::fail()
            }
        }
        HirKind::Class(class) => Hir::class(cut_class(class)),
        HirKind::Look(look) => Hir::look(in_ascii(*look)),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            sub: Box::new(cut(&repetition.sub)),
            ..repetition.clone()
        }),
        // Nobody asks what a group has matched.
        HirKind::Capture(Capture { sub, .. }) => cut(sub),
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(cut).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(cut).collect()),
    }
}

fn cut_class(class: &Class) -> Class {
    match class {
        Class::Unicode(class) => {
            let range = |(first, last)| ClassUnicodeRange::new(char::from(first), char::from(last));
            let mut letters = ClassUnicode::new(LETTERS.map(range));
            letters.intersect(class);
            Class::Unicode(letters)
        }
        Class::Bytes(class) => {
            let range = |(first, last)| ClassBytesRange::new(first, last);
            let mut letters = ClassBytes::new(LETTERS.map(range));
            letters.intersect(class);
            Class::Bytes(letters)
        }
    }
}

/// Between ASCII letters Unicode's word boundaries are those of ASCII.
fn in_ascii(look: Look) -> Look {
    match look {
        Look::WordUnicode => Look::WordAscii,
        Look::WordUnicodeNegate => Look::WordAsciiNegate,
        Look::WordStartUnicode => Look::WordStartAscii,
        Look::WordEndUnicode => Look::WordEndAscii,
        Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
        Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
        Look::Start
        | Look::End
        | Look::StartLF
        | Look::EndLF
        | Look::StartCRLF
        | Look::EndCRLF
        | Look::WordAscii
        | Look::WordAsciiNegate
        | Look::WordStartAscii
        | Look::WordEndAscii
        | Look::WordStartHalfAscii
        | Look::WordEndHalfAscii => look,
    }
}

/// The parser draws its complaint over several lines; the last one says what is wrong.
fn explain(error: &regex_syntax::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default();
    let cause = line.strip_prefix("error: ").unwrap_or(line);
    format!("is no regular expression (RE2 syntax): {cause}")
}
