//! The difference that `apply` makes: one line a thing, below it one a field.

use kreplicator_proto::v1::{Change, change::Action};

/// The changes as text, without a last line end.
pub(crate) fn changes(changes: &[Change], dry_run: bool) -> String {
    if changes.is_empty() {
        return "no changes".to_owned();
    }
    let mut lines = Vec::new();
    let (mut created, mut updated, mut deleted) = (0, 0, 0);
    for change in changes {
        let (sign, count) = match change.action() {
            Action::Create => ("+", &mut created),
            Action::Delete => ("-", &mut deleted),
            Action::Unspecified | Action::Update => ("~", &mut updated),
        };
        *count += 1;
        lines.push(format!("{sign} {} {}", change.kind, change.id));
        for field in &change.fields {
            lines.push(match (field.before.as_str(), field.after.as_str()) {
                ("", after) => format!("    {}: {after}", field.path),
                (before, "") => format!("    {}: {before} -> (none)", field.path),
                (before, after) => format!("    {}: {before} -> {after}", field.path),
            });
        }
    }
    let done = if dry_run { "to " } else { "" };
    let ending = if dry_run { "" } else { "d" };
    lines.push(format!(
        "{created} {done}create{ending}, {updated} {done}update{ending}, {deleted} {done}delete{ending}"
    ));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use kreplicator_proto::v1::FieldChange;

    use super::*;

    fn field(path: &str, before: &str, after: &str) -> FieldChange {
        FieldChange {
            path: path.to_owned(),
            before: before.to_owned(),
            after: after.to_owned(),
        }
    }

    #[test]
    fn a_difference_reads_like_one() {
        let change = |action: Action, kind: &str, id: &str, fields| Change {
            action: i32::from(action),
            kind: kind.to_owned(),
            id: id.to_owned(),
            fields,
        };
        let made = [
            change(
                Action::Create,
                "cluster",
                "west",
                vec![field("bootstrap_servers", "", "w:1")],
            ),
            change(
                Action::Update,
                "link",
                "a-b",
                vec![
                    field("paused", "false", "true"),
                    field("naming.prefix", "a.", ""),
                ],
            ),
            change(Action::Delete, "subscription", "a-b/orders", Vec::new()),
        ];
        let body = "+ cluster west\n    bootstrap_servers: w:1\n\
                    ~ link a-b\n    paused: false -> true\n    naming.prefix: a. -> (none)\n\
                    - subscription a-b/orders\n";
        assert_eq!(
            changes(&made, false),
            format!("{body}1 created, 1 updated, 1 deleted")
        );
        assert_eq!(
            changes(&made, true),
            format!("{body}1 to create, 1 to update, 1 to delete")
        );
        assert_eq!(changes(&[], true), "no changes");
    }
}
