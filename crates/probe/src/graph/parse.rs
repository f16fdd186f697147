//! The text of the `function_graph` tracer.
//!
//! ```text
//!  0)   cat-71     |               |  __x64_sys_read() {
//!  0)   cat-71     |   0.512 us    |    __fdget_pos();
//!  0)   cat-71     | + 12.345 us   |  }
//! ```

use std::collections::HashMap;

use super::tree::Graph;

/// Deepest nesting that is followed.
const DEPTH: usize = 256;
/// Longest name, bytes.
const NAME_MAX: usize = 128;

/// One line.
#[derive(Debug, PartialEq)]
enum Event<'a> {
    Enter(&'a str),
    Leave(u64),
    Leaf(&'a str, u64),
}

/// Reads a trace; lines of the task `without` are left out.
pub fn parse(text: &str, without: Option<u32>) -> Graph {
    let mut graph = Graph::default();
    // Calls that each task is in.
    let mut open = HashMap::<u32, Vec<String>>::new();
    for line in text.lines() {
        let Some((tid, event)) = event(line) else {
            graph.ignored += u64::from(is_content(line));
            continue;
        };
        if Some(tid) == without {
            continue;
        }
        let stack = open.entry(tid).or_default();
        match event {
            Event::Enter(name) if stack.len() < DEPTH => stack.push(name.to_owned()),
            Event::Enter(_) => graph.ignored += 1,
            Event::Leaf(name, ns) => {
                stack.push(name.to_owned());
                graph.add(stack, ns);
                stack.pop();
            }
            // The buffer may begin within a call.
            Event::Leave(_) if stack.is_empty() => graph.ignored += 1,
            Event::Leave(ns) => {
                graph.add(stack, ns);
                stack.pop();
            }
        }
    }
    graph.ignored += open.values().map(|stack| stack.len() as u64).sum::<u64>();
    graph
}

fn is_content(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with(['#', '-']) && !line.contains("=>")
}

fn event(line: &str) -> Option<(u32, Event<'_>)> {
    let mut parts = line.splitn(3, '|');
    let (task, duration, function) = (parts.next()?, parts.next()?, parts.next()?);
    let (_, task) = task.split_once(')')?;
    let (_, tid) = task.trim().rsplit_once('-')?;
    let tid = tid.trim().parse().ok()?;
    let function = function.split("/*").next()?.trim();
    if function == "}" {
        return Some((tid, Event::Leave(ns(duration)?)));
    }
    if let Some(name) = function.strip_suffix("() {") {
        return Some((tid, Event::Enter(named(name)?)));
    }
    let name = function.strip_suffix("();")?;
    Some((tid, Event::Leaf(named(name)?, ns(duration)?)))
}

/// A function's name; a module's in brackets may follow it.
fn named(text: &str) -> Option<&str> {
    let name = text.split_whitespace().next()?;
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
    (name.len() <= NAME_MAX && name.bytes().all(is_part)).then_some(name)
}

/// `+ 12.345 us`, in ns; signs of slowness are left out.
fn ns(text: &str) -> Option<u64> {
    let text = text
        .trim()
        .trim_start_matches(['+', '!', '#', '*', '@', '$']);
    let number = text.trim().strip_suffix("us")?.trim();
    let us: f64 = number.parse().ok()?;
    (0.0..1e12)
        .contains(&us)
        .then(|| (us * 1000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# tracer: function_graph
#
# CPU  TASK/PID         DURATION                  FUNCTION CALLS
# |     |    |           |   |                     |   |   |   |
 0)   cat-71     |               |  __x64_sys_read() {
 0)   cat-71     |   0.500 us    |    __fdget_pos();
 0)   cat-71     |               |    vfs_read() {
 ------------------------------------------
 0)   cat-71     =>    a-b-72
 ------------------------------------------
 0)   a-b-72     |   2.000 us    |  __x64_sys_read();
 0)   cat-71     |   1.000 us    |      rw_verify_area();
 0)   cat-71     | + 12.000 us   |    } /* vfs_read */
 0)   cat-71     | ! 113.500 us  |  }
 0)   cat-71     |   1.000 us    |  }
nonsense
";

    #[test]
    fn nesting_and_times_are_read_for_each_task() {
        let graph = parse(TRACE, None);
        let read = &graph.roots["__x64_sys_read"];
        assert_eq!((read.calls, read.total_ns), (2, 115_500));
        let vfs = &read.children["vfs_read"];
        assert_eq!((vfs.calls, vfs.total_ns, vfs.own_ns()), (1, 12_000, 11_000));
        assert_eq!(read.own_ns(), 115_500 - 12_500);
        // A closing brace too many, and the last line.
        assert_eq!(graph.ignored, 2);
    }

    #[test]
    fn one_task_may_be_left_out() {
        let graph = parse(TRACE, Some(72));
        assert_eq!(graph.roots["__x64_sys_read"].calls, 1);
    }
}
