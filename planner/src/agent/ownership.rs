//! Which agent a table belongs to (SPEC section 7): rendezvous hashing over the agents that live.
//!
//! Every agent computes it for itself, from the same names: where they agree on who lives, they agree on
//! every owner. When one comes or goes, only the tables that it wins or leaves change hands.

use super::admission::hash;

/// The one of `agents` that owns `table`: the one whose weight with this table is highest. `None` where
/// there are none.
pub fn owner<'a>(table: &str, agents: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let key = hash(table);
    agents.into_iter().max_by_key(|agent| (mixed(key ^ mixed(hash(agent))), *agent))
}

/// Spreads every bit of `n` over all of them (the finalizer of SplitMix64): FNV alone leaves the weights of
/// names alike in order.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeMap, format, string::String, vec::Vec};

    use super::*;

    fn owners(agents: &[&str], tables: u32) -> BTreeMap<String, String> {
        let named = (0..tables).map(|n| format!("/db/t{n}.lance"));
        named.map(|t| (t.clone(), owner(&t, agents.iter().copied()).expect("there are agents").into())).collect()
    }

    #[test]
    fn tables_are_divided_about_evenly_whatever_the_order_of_the_agents() {
        let agents = ["agent-a-1", "agent-a-2", "agent-b-1"];
        let of = owners(&agents, 3_000);
        for agent in agents {
            let share = of.values().filter(|owner| *owner == agent).count();
            assert!((800..1_200).contains(&share), "{agent} has {share} of 3000");
        }
        assert_eq!(of, owners(&["agent-b-1", "agent-a-1", "agent-a-2"], 3_000));
        assert_eq!(owner("t", []), None);
    }

    #[test]
    fn only_the_tables_of_an_agent_that_goes_change_hands() {
        let (before, after) = (owners(&["a", "b", "c"], 1_000), owners(&["a", "c"], 1_000));
        let moved: Vec<_> = before.iter().filter(|(table, owner)| after[*table] != **owner).collect();
        assert!(moved.iter().all(|(_, owner)| *owner == "b"));
        assert!(before.values().filter(|owner| *owner == "b").count() == moved.len());
    }
}
