//! The order in which workers are asked to take a task: a consistent-hash ring.
//!
//! A task is asked for at its own point of the ring and goes on from there to the first worker with
//! room. When a worker comes or goes, only the tasks next to its points change their order. The points
//! come from `hashring`, which has neither several points a worker nor a limit of load: both are added
//! here. Workers that are full are skipped in nearly constant time, so that a great fleet is planned
//! within a second.

use std::hash::{BuildHasher, Hash, Hasher};

use hashring::{DefaultHashBuilder, HashRing};

use crate::ids::TaskId;

/// Points of one worker. A guess: enough for shares within some 15 % of each other before the limit of
/// load evens them out.
const POINTS_PER_WORKER: u32 = 64;

/// Workers on a ring, known by their place in the list that the ring was made from.
#[derive(Debug)]
pub(super) struct Ring {
    /// Position and worker of each point, in order of position.
    points: Vec<(u64, usize)>,
    /// Points of each worker.
    points_of: Vec<Vec<usize>>,
}

/// One point of one worker. Hashes its bytes itself, so that positions do not hang on how a type
/// happens to be hashed.
struct Point<'a> {
    name: &'a str,
    number: u32,
    worker: usize,
}

impl Hash for Point<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.name.as_bytes());
        state.write(&[0]);
        state.write(&self.number.to_le_bytes());
    }
}

/// The position of a task.
struct Key<'a>(&'a TaskId);

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0.link.as_str().as_bytes());
        state.write(&[0]);
        state.write(self.0.topic.as_str().as_bytes());
        state.write(&[0]);
        state.write(&self.0.partition.0.to_le_bytes());
    }
}

impl Ring {
    pub(super) fn new<'a>(workers: impl Iterator<Item = &'a str>) -> Self {
        let mut ring = HashRing::new();
        let workers: Vec<&str> = workers.collect();
        let points = workers.iter().enumerate().flat_map(|(worker, name)| {
            (0..POINTS_PER_WORKER).map(move |number| Point {
                name,
                number,
                worker,
            })
        });
        ring.batch_add(points.collect());
        let points: Vec<(u64, usize)> = ring
            .into_iter()
            .map(|point| (DefaultHashBuilder.hash_one(&point), point.worker))
            .collect();
        debug_assert!(points.is_sorted_by_key(|(position, _)| *position));
        let mut points_of = vec![Vec::new(); workers.len()];
        for (index, (_, worker)) in points.iter().enumerate() {
            points_of[*worker].push(index);
        }
        Self { points, points_of }
    }

    /// The position of a task and the worker that would be asked first.
    ///
    /// # Panics
    /// Without any worker.
    pub(super) fn home_of(&self, task: &TaskId) -> (u64, usize) {
        let hash = DefaultHashBuilder.hash_one(Key(task));
        (hash, self.points[self.first_point(hash)].1)
    }

    /// Starts to ask those workers that `has_room` lets in.
    pub(super) fn walk(&self, has_room: impl Fn(usize) -> bool) -> Walk<'_> {
        let mut walk = Walk {
            ring: self,
            next: (0..self.points.len()).collect(),
            open: self.points_of.len(),
        };
        for worker in 0..self.points_of.len() {
            if !has_room(worker) {
                walk.close(worker);
            }
        }
        walk
    }

    /// The point at or after a position, round the end.
    fn first_point(&self, hash: u64) -> usize {
        let index = self
            .points
            .partition_point(|(position, _)| *position < hash);
        if index == self.points.len() { 0 } else { index }
    }
}

/// Asks workers for room until they are closed.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    ring: &'a Ring,
    /// For each point itself while its worker is open, else a point further on: a forest whose paths
    /// are halved as they are walked.
    next: Vec<usize>,
    /// Workers that are open.
    open: usize,
}

impl Walk<'_> {
    /// The first open worker for a task; None when all are closed.
    pub(super) fn ask(&mut self, task: &TaskId) -> Option<usize> {
        if self.open == 0 {
            return None;
        }
        let hash = DefaultHashBuilder.hash_one(Key(task));
        let mut point = self.ring.first_point(hash);
        while self.next[point] != point {
            self.next[point] = self.next[self.next[point]];
            point = self.next[point];
        }
        Some(self.ring.points[point].1)
    }

    /// A worker has no room any more. It must be open.
    pub(super) fn close(&mut self, worker: usize) {
        let count = self.next.len();
        for &point in &self.ring.points_of[worker] {
            self.next[point] = (point + 1) % count;
        }
        self.open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LinkId, Partition, TopicName};

    fn task(partition: i32) -> TaskId {
        TaskId {
            link: LinkId::new("a-b").expect("legal"),
            topic: TopicName::new("orders").expect("legal"),
            partition: Partition(partition),
        }
    }

    #[test]
    fn a_closed_worker_is_passed_over_and_the_others_keep_their_tasks() {
        let ring = Ring::new(["a", "b", "c"].into_iter());
        let mut all = ring.walk(|_| true);
        let mut without_b = ring.walk(|worker| worker != 1);
        for partition in 0..200 {
            let task = task(partition);
            let first = all.ask(&task).expect("open");
            let second = without_b.ask(&task).expect("open");
            assert_eq!(first, ring.home_of(&task).1);
            assert!(second == first || first == 1, "moved without need");
            assert_ne!(second, 1);
        }
        let mut none = ring.walk(|_| false);
        assert_eq!(none.ask(&task(0)), None);
    }

    /// Positions decide where tasks go after an upgrade: they are not changed lightly.
    #[test]
    fn positions_are_as_recorded() {
        let ring = Ring::new(["worker-0", "worker-1", "worker-2"].into_iter());
        let homes: Vec<usize> = (0..12).map(|n| ring.home_of(&task(n)).1).collect();
        assert_eq!(homes, [2, 0, 2, 1, 2, 1, 0, 2, 2, 2, 2, 1]);
    }
}
