//! How many keys so many rows touch.

/// One, in fixed point.
const ONE: u128 = 1 << 60;
/// The natural logarithm of 2, in fixed point.
const LN_2: u128 = 799_144_290_325_165_979;

/// Different keys that `draws` draws of `keys` keys hit, each key as likely as the others: what is expected,
/// `keys × (1 - e^(-draws / keys))`.
pub(super) fn distinct(draws: u64, keys: u64) -> u64 {
    if draws == 0 || keys == 0 {
        return 0;
    }
    let missed = exp_minus((u128::from(draws) << 60) / u128::from(keys));
    let hit = (u128::from(keys) * (ONE - missed)) >> 60;
    u64::try_from(hit).unwrap_or(u64::MAX).clamp(1, draws.min(keys))
}

/// e^-x, in fixed point.
fn exp_minus(x: u128) -> u128 {
    let (halvings, rest) = (x / LN_2, x % LN_2);
    if halvings >= 60 {
        return 0;
    }
    // The series ends below one part of 2^60.
    let (mut term, mut sum) = (ONE, ONE as i128);
    for n in 1..=24u128 {
        term = (term * rest / n) >> 60;
        sum += if n % 2 == 1 { -(term as i128) } else { term as i128 };
    }
    u128::try_from(sum).unwrap_or(0) >> halvings
}

/// `a × b / c`, without losing digits between; 0 where `c` is 0.
pub(super) fn share(a: u64, b: u64, c: u64) -> u64 {
    if let Some(whole) = a.checked_mul(b) {
        return whole.checked_div(c).unwrap_or(0);
    }
    let whole = u128::from(a) * u128::from(b);
    whole.checked_div(u128::from(c)).map_or(0, |part| u64::try_from(part).unwrap_or(u64::MAX))
}

/// Rows that clients wrote, by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) inserts: u64,
    pub(super) updates: u64,
    pub(super) deletes: u64,
}

/// What rows become when only the newest of each key counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Newest {
    /// Rows that stay: new keys and replaced ones.
    pub(super) rows: u64,
    /// Of them those with a hot key.
    pub(super) hot: u64,
    /// Keys that only a tombstone is left of.
    pub(super) tombstones: u64,
    /// Rows of the base that are replaced or deleted.
    pub(super) marks: u64,
    /// Of them those with a hot key.
    pub(super) hot_marks: u64,
}

/// How updates spread over keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skew {
    pub(super) hot_update_permille: u64,
    pub(super) hot_keys_permille: u64,
}

impl Written {
    /// The first `rows` rows that a shard ever gets, by shares of a thousand.
    pub(super) fn of(rows: u64, update_permille: u64, delete_permille: u64) -> Self {
        let (updates, deletes) = (share(rows, update_permille, 1_000), share(rows, delete_permille, 1_000));
        Self { inserts: rows.saturating_sub(updates).saturating_sub(deletes), updates, deletes }
    }

    pub(super) fn rows(self) -> u64 {
        self.inserts.saturating_add(self.updates).saturating_add(self.deletes)
    }

    pub(super) fn less(self, before: Self) -> Self {
        Self {
            inserts: self.inserts.saturating_sub(before.inserts),
            updates: self.updates.saturating_sub(before.updates),
            deletes: self.deletes.saturating_sub(before.deletes),
        }
    }

    pub(super) fn plus(self, more: Self) -> Self {
        Self {
            inserts: self.inserts.saturating_add(more.inserts),
            updates: self.updates.saturating_add(more.updates),
            deletes: self.deletes.saturating_add(more.deletes),
        }
    }

    /// What is left of them over `base` live keys of the base. Updates and deletes go to the keys of both.
    pub(super) fn newest(self, base: u64, skew: Skew) -> Newest {
        let keys = base.saturating_add(self.inserts);
        if keys == 0 {
            // Updates of no key are inserts of one.
            return Newest { rows: self.updates.min(1), ..Newest::default() };
        }
        let hot_keys = share(keys, skew.hot_keys_permille, 1_000).max(1);
        let hot_updates = share(self.updates, skew.hot_update_permille, 1_000);
        let hot = distinct(hot_updates, hot_keys);
        let cold = distinct(self.updates - hot_updates, keys);
        let updated = hot.saturating_add(cold).saturating_sub(share(hot, cold, keys)).min(keys);
        let deleted = self.deletes.min(keys);
        // Of the keys touched, those of the base; the others are inserts of these same rows.
        let (updated_base, deleted_base) = (share(updated, base, keys), share(deleted, base, keys));
        let replaced = updated_base.saturating_sub(share(updated_base, deleted, keys));
        let hot_base = share(hot, base, keys);
        let hot_base = hot_base.saturating_sub(share(hot_base, deleted, keys)).min(replaced);
        let rows = (self.inserts.saturating_sub(deleted - deleted_base)).saturating_add(replaced);
        let fresh_hot = share(self.inserts, skew.hot_keys_permille, 1_000);
        Newest {
            rows,
            hot: hot_base.saturating_add(fresh_hot).min(rows),
            tombstones: deleted,
            marks: replaced.saturating_add(deleted_base).min(base),
            hot_marks: hot_base,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_of_few_keys_hit_all_and_of_many_keys_hardly_meet() {
        assert_eq!((distinct(0, 10), distinct(10, 0), distinct(1, 1)), (0, 0, 1));
        assert_eq!(distinct(1_000_000, 10), 10);
        assert_eq!(distinct(1_000, 1 << 40), 1_000);
        // 1 - 1/e and 1 - 1/e^2.
        assert_eq!(distinct(1_000_000, 1_000_000), 632_120);
        assert_eq!(distinct(2_000_000, 1_000_000), 864_664);
        assert!(distinct(u64::MAX, u64::MAX) > u64::MAX / 2);
    }
}
