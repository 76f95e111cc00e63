//! Elements in the order of score and member, each found by its rank: a B+-tree that counts.
//!
//! Leaves own the elements, eight bytes each beyond the element itself. Inner nodes know how many elements are below each child and
//! nothing else; where an element belongs is found by looking at the children's first ones. All but visiting many elements takes
//! O(log N).

use super::table::{BlobItem, Scored};
use crate::keyspace::Item;
use std::cmp::Ordering;

/// Elements of a leaf, or children of an inner node.
const WIDTH_MAX: usize = 64;
/// With fewer than these a node is joined with a neighbour, if both together are no more than three quarters of a full one.
const WIDTH_LOW: usize = 16;
/// About what an element costs in the tree, in bytes.
const SHARE: usize = 12;

/// How two elements are ordered: by score, then by the bytes of the member. Scores are never NaN.
pub(super) fn compare(a: (f64, &[u8]), b: (f64, &[u8])) -> Ordering {
    a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal).then_with(|| a.1.cmp(b.1))
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Node {
    Leaf(Vec<Scored>),
    Inner(Vec<Child>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Child {
    /// Elements below it, one at least.
    count: usize,
    node: Node,
}

/// Elements in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Order {
    root: Node,
    len: usize,
    /// Of all elements.
    bytes: usize,
}

fn pair(item: &Scored) -> (f64, &[u8]) {
    (item.score(), item.key())
}

impl Node {
    fn width(&self) -> usize {
        match self {
            Self::Leaf(items) => items.len(),
            Self::Inner(children) => children.len(),
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Leaf(items) => items.len(),
            Self::Inner(children) => children.iter().map(|child| child.count).sum(),
        }
    }

    /// The first element; only an empty tree has none.
    fn first(&self) -> Option<&Scored> {
        match self {
            Self::Leaf(items) => items.first(),
            Self::Inner(children) => children.first()?.node.first(),
        }
    }

    /// How many elements come before the first one for which `before` is false.
    fn count_while(&self, before: &dyn Fn(f64, &[u8]) -> bool) -> usize {
        let is_before = |item: &Scored| before(item.score(), item.key());
        match self {
            Self::Leaf(items) => items.partition_point(is_before),
            Self::Inner(children) => {
                let end = children.partition_point(|child| child.node.first().is_some_and(is_before));
                let Some((last, whole)) = children[..end].split_last() else { return 0 };
                whole.iter().map(|child| child.count).sum::<usize>() + last.node.count_while(before)
            }
        }
    }

    /// Adds an element; returns what comes behind this node if it has become too wide.
    fn insert(&mut self, item: Scored) -> Option<Self> {
        match self {
            Self::Leaf(items) => {
                let at = items.partition_point(|other| compare(pair(other), pair(&item)).is_lt());
                if items.len() < WIDTH_MAX {
                    items.insert(at, item);
                    return None;
                }
                if at == items.len() {
                    // Elements often come in ascending order; the leaf stays full then.
                    return Some(Self::Leaf(vec![item]));
                }
                let mut right = items.split_off(items.len() / 2);
                match at.checked_sub(items.len()) {
                    Some(at) => right.insert(at, item),
                    None => items.insert(at, item),
                }
                Some(Self::Leaf(right))
            }
            Self::Inner(children) => {
                let is_before = |child: &Child| {
                    child.node.first().is_some_and(|first| compare(pair(first), pair(&item)).is_lt())
                };
                let idx = children.partition_point(is_before).saturating_sub(1);
                let child = &mut children[idx];
                child.count += 1;
                let right = child.node.insert(item)?;
                let count = right.count();
                child.count -= count;
                children.insert(idx + 1, Child { count, node: right });
                if children.len() <= WIDTH_MAX {
                    return None;
                }
                let is_last = idx + 2 == children.len();
                let at = if is_last { children.len() - 1 } else { children.len() / 2 };
                Some(Self::Inner(children.split_off(at)))
            }
        }
    }

    /// Takes the element of a rank out, which must be there.
    fn remove(&mut self, mut rank: usize) -> Scored {
        match self {
            Self::Leaf(items) => {
                let item = items.remove(rank);
                if items.len() * 4 < items.capacity() {
                    items.shrink_to(items.len() * 2);
                }
                item
            }
            Self::Inner(children) => {
                let mut idx = 0;
                while rank >= children[idx].count {
                    rank -= children[idx].count;
                    idx += 1;
                }
                let child = &mut children[idx];
                child.count -= 1;
                let item = child.node.remove(rank);
                tend(children, idx);
                item
            }
        }
    }

    /// Visits elements from the rank `skip` on, or from the end backwards, until `left` of them have been seen.
    fn visit<'a>(
        &'a self,
        mut skip: usize,
        left: &mut usize,
        reverse: bool,
        visit: &mut dyn FnMut(&'a Scored),
    ) {
        match self {
            Self::Leaf(items) => {
                let end = skip.saturating_add(*left).min(items.len());
                for n in skip..end {
                    visit(&items[if reverse { items.len() - 1 - n } else { n }]);
                    *left -= 1;
                }
            }
            Self::Inner(children) => {
                let mut one = |child: &'a Child| {
                    if *left > 0 && skip < child.count {
                        child.node.visit(skip, left, reverse, visit);
                    }
                    skip = skip.saturating_sub(child.count);
                    *left > 0
                };
                if reverse {
                    children.iter().rev().all(&mut one);
                } else {
                    children.iter().all(&mut one);
                }
            }
        }
    }

    fn free_some(&mut self, budget: &mut usize) -> bool {
        match self {
            Self::Leaf(items) => {
                let keep = items.len().saturating_sub(*budget);
                *budget -= items.len() - keep;
                items.truncate(keep);
                items.is_empty()
            }
            Self::Inner(children) => {
                while let Some(last) = children.last_mut() {
                    if !last.node.free_some(budget) {
                        return false;
                    }
                    children.pop();
                }
                true
            }
        }
    }
}

/// Removes a child that has become empty; joins one that has become narrow with a neighbour.
fn tend(children: &mut Vec<Child>, idx: usize) {
    if children[idx].count == 0 {
        children.remove(idx);
        return;
    }
    if children[idx].node.width() >= WIDTH_LOW || children.len() == 1 {
        return;
    }
    let left = idx.saturating_sub(1);
    if children[left].node.width() + children[left + 1].node.width() > WIDTH_MAX / 4 * 3 {
        return;
    }
    let right = children.remove(left + 1);
    children[left].count += right.count;
    match (&mut children[left].node, right.node) {
        (Node::Leaf(items), Node::Leaf(more)) => items.extend(more),
        (Node::Inner(children), Node::Inner(more)) => children.extend(more),
        _ => unreachable!("neighbours have the same height"),
    }
}

impl Default for Order {
    fn default() -> Self {
        Self { root: Node::Leaf(Vec::new()), len: 0, bytes: 0 }
    }
}

impl Order {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Bytes on the heap, about.
    pub(super) const fn heap_bytes(&self) -> usize {
        self.bytes + self.len * SHARE
    }

    /// Adds an element, which must not be there.
    pub(super) fn insert(&mut self, item: Scored) {
        self.len += 1;
        self.bytes += item.blob().heap_bytes();
        let Some(right) = self.root.insert(item) else { return };
        let left = std::mem::replace(&mut self.root, Node::Inner(Vec::new()));
        let child = |node: Node| Child { count: node.count(), node };
        self.root = Node::Inner(vec![child(left), child(right)]);
    }

    /// Takes the element of a rank out.
    pub(super) fn remove(&mut self, rank: usize) -> Option<Scored> {
        if rank >= self.len {
            return None;
        }
        let item = self.root.remove(rank);
        self.len -= 1;
        self.bytes -= item.blob().heap_bytes();
        while let Node::Inner(children) = &mut self.root
            && children.len() <= 1
        {
            self.root = children.pop().map_or(Node::Leaf(Vec::new()), |child| child.node);
        }
        Some(item)
    }

    /// How many elements come before the first one for which `before` is false; it must be true for a front part only.
    pub(super) fn count_while(&self, before: &dyn Fn(f64, &[u8]) -> bool) -> usize {
        self.root.count_while(before)
    }

    /// The rank of an element that is there.
    pub(super) fn rank(&self, score: f64, member: &[u8]) -> usize {
        self.count_while(&|other, name| compare((other, name), (score, member)).is_lt())
    }

    /// Visits `count` elements from a rank on, or backwards from the end, in which case the rank counts from there too.
    pub(super) fn visit<'a>(
        &'a self,
        from: usize,
        mut count: usize,
        reverse: bool,
        visit: &mut dyn FnMut(&'a Scored),
    ) {
        self.root.visit(from, &mut count, reverse, visit);
    }

    /// Frees elements, each for one of `budget`; true when none is left.
    pub(super) fn free_some(&mut self, budget: &mut usize) -> bool {
        self.root.free_some(budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(order: &Order, from: usize, count: usize, reverse: bool) -> Vec<(f64, Vec<u8>)> {
        let mut seen = Vec::new();
        order.visit(from, count, reverse, &mut |item| seen.push((item.score(), item.key().to_vec())));
        seen
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn behaves_like_a_sorted_vector(
            first in 0..9000u32, step in prop::sample::select(vec![1u32, 7919, 8999]),
            removals in prop::collection::vec(any::<prop::sample::Index>(), 0..200), drained in 0..9000usize
        ) {
            let (mut order, mut model) = (Order::default(), Vec::new());
            for n in 0..first {
                let member = (n.wrapping_mul(step) % 9001).to_be_bytes().to_vec();
                let score = f64::from(n.wrapping_mul(step) % 90);
                order.insert(Scored::new(&member, score));
                model.push((score, member));
            }
            model.sort_by(|a, b| compare((a.0, &a.1), (b.0, &b.1)));
            for index in removals.iter().filter(|_| first > 300) {
                let rank = index.index(model.len());
                let (score, member) = model.remove(rank);
                prop_assert_eq!(order.rank(score, &member), rank);
                let removed = order.remove(rank).unwrap();
                prop_assert_eq!(removed.key(), &member[..]);
            }
            for _ in 0..drained.min(model.len()) {
                model.remove(model.len() / 3);
                order.remove((order.len()) / 3);
            }
            prop_assert_eq!(order.len(), model.len());
            prop_assert_eq!(order.remove(model.len()).is_none(), true);
            prop_assert_eq!(&all(&order, 0, usize::MAX / 2, false), &model);
            let (from, count) = (model.len() / 4, model.len() / 2);
            prop_assert_eq!(&all(&order, from, count, false)[..], &model[from..from + count]);
            model.reverse();
            prop_assert_eq!(&all(&order, from, count, true)[..], &model[from..from + count]);
            let bytes: usize = model.iter().map(|(_, member)| member.len() + 9).sum();
            prop_assert_eq!(order.heap_bytes(), bytes + model.len() * SHARE);
            let mut steps = 1;
            while !order.free_some(&mut 100) {
                steps += 1;
            }
            prop_assert!(steps <= model.len() / 100 + 1);
        }
    }
}
