//! Whatever is assigned, however late, lost or reordered the writes are: what runs is listed in the
//! store, and in the end what runs is what is assigned.

use std::collections::BTreeMap;

use kreplicator_model::ids::OwnerEpoch;
use proptest::prelude::*;

use super::*;
use crate::supervisor::books::chunk::List;

const TASKS: i32 = 4;

#[derive(Debug, Clone)]
enum Step {
    /// The controller writes the chunk anew: these partitions, one of them under a new epoch.
    Assign([bool; TASKS as usize], usize),
    /// The worker decides and sends what it has to tell.
    Act,
    /// One of the writes under way reaches the store.
    Arrive(usize),
    /// The worker gives up waiting for its write, which stays under way.
    GiveUp,
    /// One of the tasks that were told to stop has.
    Stopped(usize),
    /// The link becomes known or unknown.
    Toggle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (any::<[bool; TASKS as usize]>(), any::<usize>()).prop_map(|(a, b)| Step::Assign(a, b)),
        6 => Just(Step::Act),
        4 => any::<usize>().prop_map(Step::Arrive),
        1 => Just(Step::GiveUp),
        3 => any::<usize>().prop_map(Step::Stopped),
        1 => Just(Step::Toggle),
    ];
    prop::collection::vec(step, 1..120)
}

#[derive(Debug, Default)]
struct World {
    books: Books,
    /// The store: its revision, and the list with the revision that wrote it.
    revision: i64,
    stored: Option<(Revision, List)>,
    /// Writes that have not reached the store, with whether the worker still waits for each.
    under_way: Vec<(Publication, bool)>,
    /// What really runs.
    running: BTreeMap<TaskId, OwnerEpoch>,
    stopping: Vec<TaskId>,
    assigned: BTreeMap<TaskId, OwnerEpoch>,
    epochs: u64,
}

impl World {
    fn next_revision(&mut self) -> Revision {
        self.revision += 1;
        Revision(self.revision)
    }

    fn assign(&mut self, partitions: &[bool], renewed: usize) {
        self.epochs += 1;
        let renewed = renewed % partitions.len();
        let mut assigned = BTreeMap::new();
        for (partition, wanted) in (0..TASKS).zip(partitions) {
            if !*wanted {
                continue;
            }
            let id = task(partition);
            let epoch = match self.assigned.get(&id) {
                Some(epoch) if renewed != usize::try_from(partition).expect("small") => *epoch,
                Some(_) | None => OwnerEpoch(self.epochs),
            };
            assigned.insert(id, epoch);
        }
        self.assigned = assigned;
        let revision = self.next_revision();
        let tasks = self.assigned.iter();
        let tasks = tasks.map(|(id, epoch)| (id.clone(), spec(id.partition.0, epoch.0)));
        let tasks = tasks.collect();
        self.books.assign(CHUNK, Chunk { revision, tasks });
    }

    fn act(&mut self, contexts: &Contexts) {
        for action in decide_with(&mut self.books, contexts, false) {
            match action {
                Action::Start(spec, _) => {
                    let twice = self.running.insert(spec.id.clone(), spec.epoch);
                    assert_eq!(twice, None, "{} runs already", spec.id);
                }
                Action::Stop(id, _) => self.stopping.push(id),
            }
        }
        if let Some(publication) = self.books.publish(CHUNK) {
            self.under_way.push((publication, true));
        }
    }

    fn arrive(&mut self, which: usize) {
        if self.under_way.is_empty() {
            return;
        }
        let (publication, awaited) = self.under_way.remove(which % (self.under_way.len()));
        let present = self.stored.as_ref().map(|(revision, _)| *revision);
        if publication.replaces != present {
            if awaited {
                self.books.found(CHUNK, present);
            }
            return;
        }
        let revision = self.next_revision();
        self.stored = Some((revision, publication.list));
        if awaited {
            self.books.committed(CHUNK, revision);
        }
    }

    fn give_up(&mut self) {
        for (_, awaited) in &mut self.under_way {
            if std::mem::take(awaited) {
                self.books.unknown(CHUNK);
            }
        }
    }

    fn stopped(&mut self, which: usize) {
        if self.stopping.is_empty() {
            return;
        }
        let id = self.stopping.remove(which % (self.stopping.len()));
        self.running.remove(&id);
        self.books.stopped(&id);
    }

    fn check(&self) {
        for (id, epoch) in &self.running {
            let (_, list) = self.stored.as_ref().expect("something runs");
            let owned = list.tasks.get(id);
            assert_eq!(
                owned.map(|owned| owned.epoch),
                Some(*epoch),
                "{id} runs unlisted"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn what_runs_is_listed_and_ends_as_assigned(steps in steps()) {
        let contexts = contexts();
        let unknown = Contexts::default();
        let mut known = true;
        let mut world = World::default();
        for step in steps {
            match step {
                Step::Assign(partitions, renewed) => world.assign(&partitions, renewed),
                Step::Act => world.act(if known { &contexts } else { &unknown }),
                Step::Arrive(which) => world.arrive(which),
                Step::GiveUp => world.give_up(),
                Step::Stopped(which) => world.stopped(which),
                Step::Toggle => known = !known,
            }
            world.check();
        }
        // Left in peace, everything falls into place.
        for _ in 0..20 {
            world.act(&contexts);
            while !world.under_way.is_empty() {
                world.arrive(0);
                world.check();
            }
            while !world.stopping.is_empty() {
                world.stopped(0);
            }
            world.check();
        }
        prop_assert_eq!(&world.running, &world.assigned);
        let listed: Option<BTreeMap<TaskId, OwnerEpoch>> = world.stored.map(|(_, list)| {
            list.tasks.into_iter().map(|(id, owned)| (id, owned.epoch)).collect()
        });
        prop_assert_eq!(listed.unwrap_or_default(), world.assigned);
    }
}
