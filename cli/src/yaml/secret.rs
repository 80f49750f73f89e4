//! Where a secret is found. A secret written into the file is refused, and never repeated.

use kreplicator_model::spec::SecretRef;

use super::{
    fault::Faults,
    fields::Fields,
    node::{Content, Node, Path},
    scalars::text,
};

/// Remedy for a secret in the wrong place.
const REMEDY: &str = "write {env: NAME} or {file: path}";

/// `{env: NAME}` or `{file: path}`.
pub(crate) fn secret_ref(node: &Node, path: &Path, faults: &mut Faults) -> Option<SecretRef> {
    match &node.content {
        Content::Map(_) => {}
        Content::Scalar { .. } => {
            let message = format!("a secret must not be written here; {REMEDY}");
            faults.push(&node.place, path, message);
            return None;
        }
        Content::Null | Content::List(_) => {
            let message = format!(
                "{} where a secret's place belongs; {REMEDY}",
                node.describe()
            );
            faults.push(&node.place, path, message);
            return None;
        }
    }
    let mut fields = Fields::of(node, path, faults)?;
    let env = fields.optional("env", text).map(SecretRef::Env);
    let file = fields.optional("file", text).map(SecretRef::File);
    let given = usize::from(fields.has("env")) + usize::from(fields.has("file"));
    if given != 1 {
        let count = if given == 0 { "neither" } else { "both" };
        fields.fault(format!("{count} of env and file given; {REMEDY}"));
    }
    fields.finish();
    env.or(file)
}
