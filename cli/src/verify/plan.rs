//! Which clusters and topics a command line means.

use std::collections::{BTreeMap, BTreeSet};

use kreplicator_kafka::secrets::SecretSource;
use kreplicator_model::{
    ids::{ClusterId, TopicName},
    selector::Matcher,
    spec::{self, Security, Selector, StartPolicy, Subscription},
};
use kreplicator_proto::{fault::FieldFault, v1};
use kreplicator_verify::{run::Topics, side::Cluster};

use super::args::Verify;
use crate::{commands::apply, exit::Failure, links::Declared};

/// What is compared.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) source: Cluster,
    pub(super) target: Cluster,
    pub(super) topics: Wanted,
}

/// Topics, as far as they can be known before the source is asked.
#[derive(Debug)]
pub(super) enum Wanted {
    /// This one.
    One(Topics),
    /// Those that a link copies.
    Link {
        link: Box<spec::Link>,
        subscriptions: Vec<Subscription>,
    },
}

impl Plan {
    /// Reads the file, if there is one, and secrets.
    pub(super) fn of(args: &Verify, secrets: &dyn SecretSource) -> anyhow::Result<Self> {
        let declared = match &args.file {
            Some(file) => Some(apply::read(file)?),
            None => None,
        };
        Ok(Self::from_parts(args, declared.as_ref(), secrets)?)
    }

    fn from_parts(
        args: &Verify,
        declared: Option<&Declared>,
        secrets: &dyn SecretSource,
    ) -> Result<Self, Failure> {
        let (source, target, topics) = match declared {
            Some(declared) => of_link(args, declared)?,
            None => of_flags(args)?,
        };
        if let (Some(from), Some(to)) = (args.from_offset, args.to_offset)
            && from >= to
        {
            let message = format!("no offset is from {from} on and below {to}");
            return Err(Failure::Usage(message));
        }
        let cluster = |spec: &spec::Cluster, options: &[(String, String)]| {
            let options: BTreeMap<_, _> = options.iter().cloned().collect();
            Cluster::new(spec, &options, secrets).map_err(|fault| Failure::Usage(fault.to_string()))
        };
        Ok(Self {
            source: cluster(&source, &args.source_option)?,
            target: cluster(&target, &args.target_option)?,
            topics,
        })
    }
}

fn of_flags(args: &Verify) -> Result<(spec::Cluster, spec::Cluster, Wanted), Failure> {
    let cluster = |id: &str, servers: &[String]| spec::Cluster {
        id: ClusterId::new(id).expect("a legal name"),
        bootstrap_servers: servers.to_vec(),
        security: Security::default(),
        client_options: BTreeMap::new(),
        expected_cluster_id: None,
    };
    let topic = args.topic.clone();
    let topic = topic.ok_or_else(|| Failure::Usage("name a topic by --topic".to_owned()))?;
    let topics = Topics {
        target: args.target_topic.clone().unwrap_or_else(|| topic.clone()),
        source: topic,
        starts_late: false,
    };
    Ok((
        cluster("source", &args.source_bootstrap),
        cluster("target", &args.target_bootstrap),
        Wanted::One(topics),
    ))
}

fn of_link(
    args: &Verify,
    declared: &Declared,
) -> Result<(spec::Cluster, spec::Cluster, Wanted), Failure> {
    let wanted = args
        .link
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let link = declared.links.iter().find(|link| link.id == wanted);
    let link = link.ok_or_else(|| {
        let ids: Vec<_> = declared.links.iter().map(|link| link.id.as_str()).collect();
        let known = match ids.is_empty() {
            true => "it declares none".to_owned(),
            false => format!("it declares {}", ids.join(", ")),
        };
        Failure::Usage(format!("link {wanted} is not in the file; {known}"))
    })?;
    let cluster = |id: &str| {
        let cluster = declared.clusters.iter().find(|cluster| cluster.id == id);
        let cluster = cluster.ok_or_else(|| {
            Failure::Usage(format!(
                "link {wanted}: cluster {id} is not in the file; declare it"
            ))
        })?;
        spec::Cluster::try_from(cluster).map_err(faults)
    };
    let (source, target) = (cluster(&link.source)?, cluster(&link.target)?);
    let link = spec::Link::try_from(link).map_err(faults)?;
    let of_link = |subscription: &&v1::Subscription| subscription.link == wanted;
    let subscriptions = declared.subscriptions.iter().filter(of_link);
    let subscriptions = subscriptions
        .map(|subscription| Subscription::try_from(subscription).map_err(faults))
        .collect::<Result<Vec<_>, _>>()?;
    let topics = match &args.topic {
        None => Wanted::Link {
            link: Box::new(link),
            subscriptions,
        },
        Some(topic) => Wanted::One(Topics {
            source: topic.clone(),
            target: match &args.target_topic {
                Some(target) => target.clone(),
                None => target_of(&link, topic)?,
            },
            starts_late: starts_late(&link, &subscriptions, topic)?,
        }),
    };
    Ok((source, target, topics))
}

impl Wanted {
    /// The topics, out of those of the source. A topic that is asked for by its name is compared even
    /// if it is not there: that it is not comes out then.
    pub(super) fn of<'a>(
        self,
        on_source: impl Iterator<Item = &'a TopicName>,
    ) -> Result<Vec<Topics>, Failure> {
        let (link, subscriptions) = match self {
            Self::One(topics) => return Ok(vec![topics]),
            Self::Link {
                link,
                subscriptions,
            } => (link, subscriptions),
        };
        let mut names = BTreeSet::new();
        let mut patterns = Vec::new();
        for subscription in &subscriptions {
            match &subscription.selector {
                Selector::Topic(topic) => {
                    names.insert(topic.clone());
                }
                selector @ Selector::Pattern(_) => patterns.push(compiled(selector)?),
            }
        }
        names.extend(
            on_source
                .filter(|topic| patterns.iter().any(|pattern| pattern.matches(topic)))
                .cloned(),
        );
        if names.is_empty() {
            let message = format!(
                "link {}: no topic of the source is asked for on it",
                link.id
            );
            return Err(Failure::NotCompared(message));
        }
        let topics = names.into_iter().map(|topic| {
            Ok(Topics {
                target: target_of(&link, &topic)?,
                starts_late: starts_late(&link, &subscriptions, &topic)?,
                source: topic,
            })
        });
        topics.collect()
    }
}

fn target_of(link: &spec::Link, topic: &TopicName) -> Result<TopicName, Failure> {
    let target = link.naming.target_of(topic);
    target.map_err(|fault| Failure::Usage(format!("link {}: {fault}", link.id)))
}

/// Whether a topic need not be copied from its beginning. One that no subscription asks for need not.
fn starts_late(
    link: &spec::Link,
    subscriptions: &[Subscription],
    topic: &TopicName,
) -> Result<bool, Failure> {
    let mut asked = false;
    for subscription in subscriptions {
        if compiled(&subscription.selector)?.matches(topic) {
            asked = true;
            if subscription.start.unwrap_or(link.start) != StartPolicy::Earliest {
                return Ok(true);
            }
        }
    }
    Ok(!asked)
}

fn compiled(selector: &Selector) -> Result<Matcher, Failure> {
    Matcher::compile(selector).map_err(|fault| Failure::Usage(fault.to_string()))
}

fn faults(faults: Vec<FieldFault>) -> Failure {
    let texts = faults.iter().map(ToString::to_string).collect::<Vec<_>>();
    Failure::Usage(texts.join("; "))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use kreplicator_kafka::secrets::ProcessSecrets;

    use super::*;
    use crate::{
        args::{Cli, Command},
        links,
    };

    const FILE: &str = r#"
clusters:
  east: {bootstrap_servers: ["east:9092"]}
  west: {bootstrap_servers: ["west:9092"]}
links:
  east-west:
    source: east
    target: west
    naming: {prefix: "east.", rename: {orders: all-orders}}
    topics: [orders, {topic: late, start: latest}]
    patterns: [{include: "events\\..*", exclude: ["events\\.debug"]}]
  other: {source: east, target: nowhere, topics: [a]}
"#;

    fn plan(line: &str) -> Result<Plan, Failure> {
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("a legal command line");
        let Command::Verify(args) = cli.command else {
            panic!("{cli:?}");
        };
        let declared = links::read("links.yaml", FILE).expect("no faults");
        let declared = args.file.is_some().then_some(&declared);
        Plan::from_parts(&args, declared, &ProcessSecrets)
    }

    fn topics(line: &str) -> Vec<(String, String, bool)> {
        let plan = plan(line).expect("a plan");
        let names = [
            "events.a",
            "events.debug",
            "unrelated",
            "__consumer_offsets",
        ];
        let on_source = names.map(|name| TopicName::new(name).expect("legal"));
        let topics = plan.topics.of(on_source.iter()).expect("topics");
        topics
            .into_iter()
            .map(|topics| {
                (
                    topics.source.to_string(),
                    topics.target.to_string(),
                    topics.starts_late,
                )
            })
            .collect()
    }

    fn named(topics: &[(&str, &str, bool)]) -> Vec<(String, String, bool)> {
        let topics = topics.iter();
        topics
            .map(|&(source, target, late)| (source.to_owned(), target.to_owned(), late))
            .collect()
    }

    #[test]
    fn a_link_means_its_subscriptions_under_its_names() {
        let expected = [
            ("events.a", "east.events.a", false),
            ("late", "east.late", true),
            ("orders", "all-orders", false),
        ];
        assert_eq!(
            topics("kreplicator verify -f x --link east-west"),
            named(&expected)
        );
        let one = topics("kreplicator verify -f x --link east-west --topic late");
        assert_eq!(one, named(&[("late", "east.late", true)]));
        let line = "kreplicator verify -f x --link east-west --topic late --target-topic copy";
        assert_eq!(topics(line), named(&[("late", "copy", true)]));
    }

    #[test]
    fn two_clusters_by_flags_need_no_file() {
        let line = "kreplicator verify --source-bootstrap a:1,b:1 --target-bootstrap c:1 --topic orders \
                    --target-topic a.orders --source-option client.id=me";
        assert_eq!(topics(line), named(&[("orders", "a.orders", false)]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let base = "kreplicator verify -f x --link";
        for (line, part) in [
            (format!("{base} nothing"), "it declares east-west, other"),
            (
                format!("{base} other"),
                "cluster nowhere is not in the file",
            ),
            (
                format!("{base} east-west --topic a --partition 0 --from-offset 5 --to-offset 5"),
                "no offset",
            ),
            (
                "kreplicator verify --source-bootstrap a:1 --target-bootstrap b:1 --topic a \
                 --source-option no.such=1"
                    .to_owned(),
                "no.such",
            ),
        ] {
            let fault = plan(&line).expect_err("wrong");
            assert!(fault.to_string().contains(part), "{line}: {fault}");
            assert!(matches!(fault, Failure::Usage(_)));
        }
    }

    #[test]
    fn half_a_command_line_is_refused() {
        for line in [
            "kreplicator verify",
            "kreplicator verify -f x",
            "kreplicator verify --link a",
            "kreplicator verify --source-bootstrap a:1 --topic t",
            "kreplicator verify --source-bootstrap a:1 --target-bootstrap b:1",
            "kreplicator verify -f x --link a --from-offset 5",
            "kreplicator verify -f x --link a --partition 0",
            "kreplicator verify -f x --link a --source-bootstrap a:1 --target-bootstrap b:1 --topic t",
        ] {
            assert!(
                Cli::try_parse_from(line.split_whitespace()).is_err(),
                "{line}"
            );
        }
    }
}
