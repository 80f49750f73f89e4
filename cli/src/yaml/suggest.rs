//! "Did you mean": the known word nearest to the one given.

/// The nearest of `known`, when it is near enough to be a slip of the finger.
pub(crate) fn nearest<'a>(
    given: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let folded = |word: &str| word.to_ascii_lowercase().replace('-', "_");
    let given = folded(given);
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(&given, &folded(word)), word))
        .filter(|(distance, word)| *distance <= (word.len().max(given.len()) / 3).max(1))
        .min()
        .map(|(_, word)| word)
}

/// What to do about an unknown word: the nearest known one, else all of them.
pub(crate) fn remedy<'a>(given: &str, known: &[&'a str]) -> String {
    if let Some(word) = nearest(given, known.iter().copied()) {
        return format!("did you mean `{word}`?");
    }
    if known.is_empty() {
        return "remove it".to_owned();
    }
    let mut words: Vec<&'a str> = known.to_vec();
    words.sort_unstable();
    format!("known here: {}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let known = ["listen", "lease_ttl", "id"];
        assert_eq!(nearest("listn", known), Some("listen"));
        assert_eq!(nearest("lease-ttl", known), Some("lease_ttl"));
        assert_eq!(nearest("Listen", known), Some("listen"));
        assert_eq!(nearest("password", known), None);
        assert_eq!(
            remedy("password", &known),
            "known here: id, lease_ttl, listen"
        );
    }
}
