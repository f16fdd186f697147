//! Calls added up under the same callers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::flame;

/// Most nodes of a graph.
const NODES_MAX: usize = 1 << 18;
/// Deepest level that the text shows.
const SHOWN_DEPTH: usize = 40;

/// Call graphs by their first functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// First functions.
    pub roots: BTreeMap<String, Node>,
    /// Lines of the trace that were not understood, and calls that did not end.
    pub ignored: u64,
    nodes: usize,
}

/// A function under its callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// How often it was called.
    pub calls: u64,
    /// Time in it and in what it called, ns.
    pub total_ns: u64,
    /// What it called.
    pub children: BTreeMap<String, Node>,
}

impl Node {
    /// Time in it alone, ns.
    pub(crate) fn own_ns(&self) -> u64 {
        let below: u64 = self.children.values().map(|child| child.total_ns).sum();
        self.total_ns.saturating_sub(below)
    }

    /// Children, the longest first.
    pub(super) fn by_time(&self) -> Vec<(&String, &Self)> {
        by_time(&self.children)
    }
}

impl Graph {
    /// Adds one call with its callers, the outermost first.
    pub(super) fn add(&mut self, stack: &[String], ns: u64) {
        let mut level = &mut self.roots;
        for (depth, name) in stack.iter().enumerate() {
            if !level.contains_key(name) {
                if self.nodes == NODES_MAX {
                    self.ignored += 1;
                    return;
                }
                self.nodes += 1;
            }
            let node = level.entry(name.clone()).or_default();
            if depth + 1 == stack.len() {
                node.calls += 1;
                node.total_ns = node.total_ns.saturating_add(ns);
                return;
            }
            level = &mut node.children;
        }
    }

    /// The part that begins with this function.
    pub fn root(&self, name: &str) -> Option<&Node> {
        self.roots.get(name)
    }

    /// The graph of a function as text: time, share of the whole, calls, name.
    pub fn text(&self, root: &str) -> Option<String> {
        let node = self.root(root)?;
        let mut text = format!("{:>12} {:>6} {:>9}  {root}\n", "TOTAL us", "%", "CALLS");
        lines(&mut text, root, node, node.total_ns.max(1), 0);
        Some(text)
    }

    /// Folded stacks: callers by semicolons, a blank, ns of the last alone.
    pub fn folded(&self, root: &str) -> Option<String> {
        let mut text = String::new();
        fold(&mut text, root, self.root(root)?);
        Some(text)
    }

    /// A flame graph as SVG.
    pub fn svg(&self, root: &str) -> Option<String> {
        Some(flame::svg(root, self.root(root)?))
    }
}

fn by_time(nodes: &BTreeMap<String, Node>) -> Vec<(&String, &Node)> {
    let mut sorted: Vec<_> = nodes.iter().collect();
    sorted.sort_by_key(|(_, node)| std::cmp::Reverse(node.total_ns));
    sorted
}

fn lines(text: &mut String, name: &str, node: &Node, all_ns: u64, depth: usize) {
    let _ = writeln!(
        text,
        "{:>12.3} {:>6.2} {:>9}  {:indent$}{name}",
        node.total_ns as f64 / 1000.0,
        100.0 * node.total_ns as f64 / all_ns as f64,
        node.calls,
        "",
        indent = 2 * depth,
    );
    if depth < SHOWN_DEPTH {
        for (name, child) in node.by_time() {
            lines(text, name, child, all_ns, depth + 1);
        }
    }
}

fn fold(text: &mut String, stack: &str, node: &Node) {
    if node.own_ns() > 0 {
        let _ = writeln!(text, "{stack} {}", node.own_ns());
    }
    for (name, child) in &node.children {
        fold(text, &format!("{stack};{name}"), child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Graph {
        let mut graph = Graph::default();
        let stack = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        graph.add(&stack(&["read", "vfs", "copy"]), 300);
        graph.add(&stack(&["read", "vfs"]), 500);
        graph.add(&stack(&["read"]), 1000);
        graph
    }

    #[test]
    fn folded_stacks_have_each_function_s_own_time() {
        let folded = graph().folded("read").unwrap();
        assert_eq!(folded, "read 500\nread;vfs 200\nread;vfs;copy 300\n");
        assert_eq!(graph().folded("write"), None);
    }

    #[test]
    fn text_is_indented_by_depth() {
        let text = graph().text("read").unwrap();
        let last = text.lines().last().unwrap();
        assert_eq!(last, "       0.300  30.00         1      copy");
    }

    #[test]
    fn a_flame_graph_has_a_frame_for_each_function() {
        let svg = graph().svg("read").unwrap();
        assert_eq!(svg.matches("<rect").count(), 4, "{svg}");
        assert!(
            svg.contains("<title>copy: 0.300 us in 1 call, 30.0 %</title>"),
            "{svg}"
        );
        assert!(
            svg.contains("; callers below, width is time</text>"),
            "{svg}"
        );
    }
}
