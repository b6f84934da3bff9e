//! The encoding `packed-1`: a request for a plan, and the plan, in few bytes and without names.
//!
//! JSON is for everybody, this for planners that are built from the same types: fields stand in their
//! order, numbers take as many bytes as they need, an index is named once, and fragments lie in
//! columns. It has no room for what is new. Whoever changes a type or its order here gives [`NAME`]
//! the next number, so that a host and a plugin of different ages fall back to JSON.

use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};

mod columns;
mod types;

use crate::facts::TableFacts;
use crate::plan::{Plan, Trigger};
use crate::policy::Policy;

/// Its name in a description.
pub const NAME: &str = "packed-1";

/// The first byte of everything packed: no JSON begins with it.
const MARK: u8 = 1;

/// `plan_table` as a request.
pub fn request(facts: &TableFacts, policy: &Policy, now_ms: u64, trigger: Trigger) -> Vec<u8> {
    let mut out = Out::default();
    out.bytes.push(MARK);
    now_ms.put(&mut out);
    trigger.put(&mut out);
    policy.put(&mut out);
    facts.put(&mut out);
    out.bytes
}

/// A plan as an answer.
pub(super) fn answer(plan: &Plan) -> Vec<u8> {
    let mut out = Out::default();
    out.bytes.push(MARK);
    plan.put(&mut out);
    out.bytes
}

/// Whether bytes are packed, and not JSON.
pub fn is_packed(bytes: &[u8]) -> bool {
    bytes.first() == Some(&MARK)
}

/// The plan of a packed answer. `None`: it is none.
pub fn read_answer(bytes: &[u8]) -> Option<Plan> {
    whole(bytes, Plan::get)
}

pub(super) fn read_request(bytes: &[u8]) -> Option<(TableFacts, Policy, u64, Trigger)> {
    whole(bytes, |input| {
        let (now_ms, trigger) = (u64::get(input)?, Trigger::get(input)?);
        let policy = Policy::get(input)?;
        Some((TableFacts::get(input)?, policy, now_ms, trigger))
    })
}

fn whole<T>(bytes: &[u8], read: impl FnOnce(&mut Input<'_>) -> Option<T>) -> Option<T> {
    let mut input = Input { rest: bytes.strip_prefix(&[MARK])?, names: Vec::new() };
    read(&mut input).filter(|_| input.rest.is_empty())
}

#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    /// Names of the table's indexes, sorted: what a shard's `caught_up` refers to.
    names: Vec<String>,
}

struct Input<'a> {
    rest: &'a [u8],
    names: Vec<String>,
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(taken)
    }
}

/// How a value is packed. Whatever bytes are read, reading takes no more than a few times their length
/// in memory.
trait Packed: Sized {
    fn put(&self, out: &mut Out);
    fn get(input: &mut Input<'_>) -> Option<Self>;
}

/// Items that room is made for before they are read.
const AHEAD_MAX: u64 = 1024;

impl Packed for u64 {
    fn put(&self, out: &mut Out) {
        let mut left = *self;
        while left >= 0x80 {
            out.bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        out.bytes.push(left as u8);
    }

    fn get(input: &mut Input<'_>) -> Option<Self> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = input.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return None;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

impl Packed for u32 {
    fn put(&self, out: &mut Out) {
        u64::from(*self).put(out);
    }

    fn get(input: &mut Input<'_>) -> Option<Self> {
        u64::get(input)?.try_into().ok()
    }
}

impl Packed for bool {
    fn put(&self, out: &mut Out) {
        out.bytes.push(u8::from(*self));
    }

    fn get(input: &mut Input<'_>) -> Option<Self> {
        match input.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Packed for String {
    fn put(&self, out: &mut Out) {
        (self.len() as u64).put(out);
        out.bytes.extend_from_slice(self.as_bytes());
    }

    fn get(input: &mut Input<'_>) -> Option<Self> {
        let length = u64::get(input)?;
        core::str::from_utf8(input.take(length)?).ok().map(ToString::to_string)
    }
}

impl<T: Packed> Packed for Option<T> {
    fn put(&self, out: &mut Out) {
        out.bytes.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(input: &mut Input<'_>) -> Option<Self> {
        if bool::get(input)? { T::get(input).map(Some) } else { Some(None) }
    }
}

impl<T: Packed> Packed for Vec<T> {
    fn put(&self, out: &mut Out) {
        (self.len() as u64).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(input: &mut Input<'_>) -> Option<Self> {
        let length = u64::get(input)?;
        let mut items = Self::with_capacity(length.min(AHEAD_MAX) as usize);
        for _ in 0..length {
            items.push(T::get(input)?);
        }
        Some(items)
    }
}

impl Packed for BTreeMap<String, String> {
    fn put(&self, out: &mut Out) {
        (self.len() as u64).put(out);
        self.iter().for_each(|(key, value)| (key.put(out), value.put(out)).0);
    }

    fn get(input: &mut Input<'_>) -> Option<Self> {
        (0..u64::get(input)?).map(|_| Some((String::get(input)?, String::get(input)?))).collect()
    }
}

/// Generations by index. A name is its place among the table's indexes, counted from 1; 0 stands
/// before a name that none of them has.
impl Packed for BTreeMap<String, u64> {
    fn put(&self, out: &mut Out) {
        (self.len() as u64).put(out);
        let names = core::mem::take(&mut out.names);
        let mut next = 0;
        for (name, generation) in self {
            // Both are sorted, so the next one is nearly always the right one.
            if names.get(next) != Some(name) {
                next = names.binary_search(name).unwrap_or(names.len());
            }
            if next < names.len() {
                next += 1;
                (next as u64).put(out);
            } else {
                0u64.put(out);
                name.put(out);
            }
            generation.put(out);
        }
        out.names = names;
    }

    fn get(input: &mut Input<'_>) -> Option<Self> {
        let length = u64::get(input)?;
        let one = |_| {
            let name = match u64::get(input)? {
                0 => String::get(input)?,
                nth => input.names.get(usize::try_from(nth - 1).ok()?)?.clone(),
            };
            Some((name, u64::get(input)?))
        };
        (0..length).map(one).collect()
    }
}
