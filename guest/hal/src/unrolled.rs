//! Loops for code that runs where each instruction is emulated and takes a microsecond.

/// Calls `act` for each item in order: eight at a time, then two, so that the loop itself takes few
/// instructions.
#[inline(always)]
pub(crate) fn for_each<T>(items: &[T], mut act: impl FnMut(&T)) {
    let (groups, rest) = items.as_chunks::<8>();
    for [a, b, c, d, e, f, g, h] in groups {
        act(a);
        act(b);
        act(c);
        act(d);
        act(e);
        act(f);
        act(g);
        act(h);
    }
    let (pairs, rest) = rest.as_chunks::<2>();
    for [a, b] in pairs {
        act(a);
        act(b);
    }
    rest.iter().for_each(act);
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_item_is_met_once_in_order() {
        for count in 0..40 {
            let items: Vec<u32> = (0..count).collect();
            let mut met = Vec::new();
            super::for_each(&items, |item| met.push(*item));
            assert_eq!(met, items);
        }
    }
}
