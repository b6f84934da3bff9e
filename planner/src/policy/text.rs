//! Knobs as people write them: strict to read, exact to print.

use alloc::{format, string::String, vec::Vec};

use super::{KNOBS, Knob, Policy, Refused, Unit};

/// Suffixes of bytes and how many bytes each is, largest first.
const BYTES: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Suffixes of time and how many milliseconds each is, largest first.
const MILLIS: &[(&str, u64)] = &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Words for times that people write instead, and the suffix of each.
const WORDS: &[(&str, &str)] = &[
    ("sec", "s"),
    ("seconds", "s"),
    ("min", "m"),
    ("minutes", "m"),
    ("hour", "h"),
    ("hours", "h"),
    ("day", "d"),
    ("days", "d"),
];

impl Policy {
    /// Sets one knob from text: a whole number in the knob's unit, or one with a suffix (`2GiB`,
    /// `64KB`, `90s`, `7d`). Nothing else: no sign, no space, no fraction.
    ///
    /// # Errors
    /// An unknown key, with the nearest known one; a value that is malformed, out of range, not
    /// whole in its unit, or 0 where 0 means nothing.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), Refused> {
        set(KNOBS, self, key, text)
    }

    /// The defaults with `pairs` of key and text on top; a later pair wins.
    ///
    /// # Errors
    /// The first pair that [`Policy::set`] refuses.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Refused> {
        let mut policy = Self::default();
        for (key, text) in pairs {
            policy.set(key, text)?;
        }
        Ok(policy)
    }

    /// A settings file with every knob explained. A knob at its default stands there as a comment.
    pub fn to_toml(&self) -> String {
        let defaults = Self::default();
        let mut out = String::from(
            "# Settings of Caretaker. A line that begins with `#` shows a default.\n\
             # A flag wins over the environment, the environment over this file.\n\
             # Bytes take B, KiB, MiB, GiB, TiB, KB, MB, GB, TB; times take s, m, h, d.\n",
        );
        for knob in KNOBS {
            let names = format!(" Environment {}, flag --{}.", knob.env(), knob.flag());
            out += &knob.lines(self, &defaults, &names);
        }
        out
    }
}

/// Sets the one of `knobs` that has this key, from text.
pub(crate) fn set<T>(knobs: &'static [Knob<T>], of: &mut T, key: &str, text: &str) -> Result<(), Refused> {
    let knob = knobs.iter().find(|knob| knob.key == key);
    let Some(knob) = knob else { return Err(unknown(key, knobs.iter().map(|knob| knob.key))) };
    let raw = knob.parse(text)?;
    knob.within(raw, Some(text))?;
    *(knob.field)(of) = u64::try_from(raw).map_err(|_| knob.refuse(Some(text), "is too large"))?;
    Ok(())
}

impl<T> Knob<T> {
    /// The knob's value as [`Policy::set`] reads it back: `1GiB`, `7d`, `32`.
    pub fn text(&self, of: &T) -> String {
        self.print(self.value(of))
    }

    /// Refuses a value that is out of the knob's range.
    pub(crate) fn check(&self, of: &T) -> Result<(), Refused> {
        self.within(u128::from((self.get)(of)), None)
    }

    /// Lines of a settings file: what it is, its range, its value; a default stands as a comment.
    pub(crate) fn lines(&self, of: &T, defaults: &T, names: &str) -> String {
        let (min, max) = (self.print(self.min), self.print(self.max));
        let mut out = format!("\n# {}\n# {min} to {max}", self.help);
        if let Some(zero) = self.zero {
            out += &format!("; 0: {zero}");
        }
        let comment = if self.value(of) == self.value(defaults) { "# " } else { "" };
        let quote = if self.unit == Unit::Count { "" } else { "\"" };
        out + &format!(".{names}\n{comment}{} = {quote}{}{quote}\n", self.key, self.text(of))
    }

    /// A number of written units, with the largest suffix that divides it.
    fn print(&self, value: u64) -> String {
        let divides = |size: u64| size > 0 && value > 0 && value.is_multiple_of(size);
        let mut sizes = self.suffixes().iter().map(|(suffix, size)| (suffix, size / self.scale()));
        match sizes.find(|(_, size)| divides(*size)) {
            Some((suffix, size)) => format!("{}{suffix}", value / size),
            None => format!("{value}"),
        }
    }

    fn suffixes(&self) -> &'static [(&'static str, u64)] {
        match self.unit {
            Unit::Count => &[],
            Unit::Bytes => BYTES,
            Unit::Seconds => MILLIS,
        }
    }

    /// The value in [`Policy`]'s unit.
    fn parse(&self, text: &str) -> Result<u128, Refused> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, suffix) = text.split_at(digits);
        if text.is_empty() {
            return Err(self.refuse(Some(text), "is empty"));
        }
        if text.trim() != text {
            return Err(self.refuse(Some(text), "has a space too many"));
        }
        let size = self.suffixes().iter().find(|(name, _)| *name == suffix).map(|(_, size)| *size);
        if let (None, Some(meant)) = (size, self.meant(text)) {
            return Err(self.refuse(Some(text), &format!("is written {meant}")));
        }
        if number.is_empty() || suffix.starts_with(|c: char| !c.is_ascii_alphabetic()) {
            return Err(self.refuse(Some(text), "is not a whole number"));
        }
        let size = if suffix.is_empty() { Some(self.scale()) } else { size };
        let size = size.ok_or_else(|| self.refuse(Some(text), "has a unit that it can't have"))?;
        let number: u64 = number.parse().map_err(|_| self.refuse(Some(text), "is too large"))?;
        let raw = u128::from(number) * u128::from(size);
        if raw % u128::from(self.scale()) != 0 {
            return Err(self.refuse(Some(text), "is not a whole number of seconds"));
        }
        Ok(raw)
    }

    /// How a number is written whose unit is right but for a space, its case, or what people leave out of
    /// it: `1 GB` is `1GB`, `1G` is `1GiB` or `1GB`, `5 min` is `5m`.
    fn meant(&self, text: &str) -> Option<String> {
        let (number, unit) = text.trim().split_at(text.trim().find(|c: char| !c.is_ascii_digit())?);
        let unit = unit.trim().to_ascii_lowercase();
        let letter = unit.len() == 1 && self.unit == Unit::Bytes;
        let words = if self.unit == Unit::Seconds { WORDS } else { &[] };
        let plain = self.suffixes().iter().map(|(suffix, _)| (*suffix, *suffix));
        let is_it = |name: &str| {
            let name = name.to_ascii_lowercase();
            name == unit || (letter && name.starts_with(&unit))
        };
        let meant = plain.chain(words.iter().copied()).filter(|(name, _)| is_it(name));
        let written: Vec<String> = meant.map(|(_, suffix)| format!("`{number}{suffix}`")).collect();
        (!number.is_empty() && !written.is_empty()).then(|| written.join(" or "))
    }

    /// Refuses a value, in [`Policy`]'s unit, that is out of the knob's range.
    pub(super) fn within(&self, raw: u128, text: Option<&str>) -> Result<(), Refused> {
        let scale = u128::from(self.scale());
        let range = u128::from(self.min) * scale..=u128::from(self.max) * scale;
        if raw == 0 && self.min > 0 {
            return Err(self.refuse(text.or(Some("0")), "means nothing here"));
        }
        if !range.contains(&raw) {
            let shown = format!("{}{}", raw, if self.unit == Unit::Seconds { "ms" } else { "" });
            return Err(self.refuse(text.or(Some(&shown)), "is out of range"));
        }
        Ok(())
    }

    fn refuse(&self, text: Option<&str>, what: &str) -> Refused {
        let unit = match self.unit {
            Unit::Count => "a whole number",
            Unit::Bytes => "a whole number of bytes, or one with B, KiB, MiB, GiB, TiB, KB, MB, GB or TB,",
            Unit::Seconds => "a whole number of seconds, or one with s, m, h or d,",
        };
        let (min, max) = (self.print(self.min), self.print(self.max));
        let text = text.unwrap_or_default();
        Refused { key: self.key.into(), why: format!("`{text}` {what}; write {unit} from {min} to {max}") }
    }
}

/// A key that is none of `known`, with the one of them it was probably meant to be.
pub(super) fn unknown<'a>(key: &str, known: impl Iterator<Item = &'a str> + Clone) -> Refused {
    let written = key.to_ascii_lowercase().replace('-', "_");
    let nearest = known.clone().map(|known| (distance(&written, known), known)).min();
    let why = match nearest {
        Some((far, known)) if far <= 1 + known.len() / 4 => {
            format!("is not a setting; did you mean `{known}`?")
        }
        _ => {
            let known: Vec<&str> = known.collect();
            format!("is not a setting; the settings are {}", known.join(", "))
        }
    };
    Refused { key: key.into(), why }
}

/// Insertions, deletions and replacements that turn `a` into `b`.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    // Longer than any key can be near to: not worth the work.
    if a.len() > 128 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
