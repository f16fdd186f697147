//! A flame graph as SVG: callers below, width is time. Hovering over a frame
//! shows its name and time; it contains no script.
//!
//! The usual crate for it, inferno, has a licence (CDDL) that this workspace does
//! not take.

use std::fmt::Write as _;

use super::tree::Node;

/// Picture's width, and a frame's height, pixels.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 18.0;
/// Frames that are narrower are not drawn.
const NARROWEST: f64 = 0.3;
/// Width of a character.
const CHARACTER: f64 = 7.0;

/// A frame's place.
struct FrameBox {
    left: f64,
    width: f64,
    level: usize,
}

/// Draws a function and all below it.
pub(super) fn svg(name: &str, root: &Node) -> String {
    let levels = depth(root);
    // One line more for the heading, and one of space.
    let height = HEIGHT * (levels + 2) as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"3\" y=\"13\">{}; callers below, width is time</text>\n",
        spent(name, root)
    );
    let whole = FrameBox {
        left: 0.0,
        width: WIDTH,
        level: 0,
    };
    let per_ns = WIDTH / root.total_ns.max(1) as f64;
    frame(&mut text, name, root, &whole, per_ns, height);
    text.push_str("</svg>\n");
    text
}

fn depth(node: &Node) -> usize {
    1 + node.children.values().map(depth).max().unwrap_or(0)
}

fn frame(text: &mut String, name: &str, node: &Node, place: &FrameBox, per_ns: f64, height: f64) {
    let top = height - HEIGHT * (place.level + 1) as f64;
    let share = 100.0 * node.total_ns as f64 * per_ns / WIDTH;
    let _ = writeln!(
        text,
        "<g><title>{}, {share:.1} %</title>\
         <rect x=\"{:.2}\" y=\"{top:.0}\" width=\"{:.2}\" height=\"{:.0}\" fill=\"{}\" rx=\"1\"/>\
         <text x=\"{:.2}\" y=\"{:.0}\">{}</text></g>",
        spent(name, node),
        place.left,
        place.width,
        HEIGHT - 1.0,
        colour(name),
        place.left + 3.0,
        top + 13.0,
        escaped(&fitting(name, place.width)),
    );
    let mut left = place.left;
    for (name, child) in node.by_time() {
        // Times of children may add up to more than their caller's, by rounding.
        let room = place.left + place.width - left;
        let width = (child.total_ns as f64 * per_ns).min(room);
        if width >= NARROWEST {
            let place = FrameBox {
                left,
                width,
                level: place.level + 1,
            };
            frame(text, name, child, &place, per_ns, height);
        }
        left += width.max(0.0);
    }
}

/// A function's name, its time and its calls.
fn spent(name: &str, node: &Node) -> String {
    let calls = match node.calls {
        1 => "1 call".to_owned(),
        calls => format!("{calls} calls"),
    };
    let us = node.total_ns as f64 / 1000.0;
    format!("{}: {us:.3} us in {calls}", escaped(name))
}

/// As much of a name as the frame has room for, with two dots for the rest.
fn fitting(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    match room {
        room if room >= name.chars().count() => name.to_owned(),
        0..5 => String::new(),
        room => name.chars().take(room - 2).chain("..".chars()).collect(),
    }
}

/// A warm colour that is always the same for a name.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(5381_u32, |hash, byte| {
        hash.wrapping_mul(33) ^ u32::from(byte)
    });
    format!(
        "hsl({},{}%,{}%)",
        hash % 50,
        70 + hash / 50 % 20,
        62 + hash / 1000 % 12
    )
}

fn escaped(name: &str) -> String {
    name.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_cut_shows_it() {
        assert_eq!(fitting("vfs_read", 100.0), "vfs_read");
        assert_eq!(fitting("security_file_permission", 76.0), "security..");
        assert_eq!(fitting("read", 34.0), "read");
        assert_eq!(fitting("vfs_read", 30.0), "");
    }
}
