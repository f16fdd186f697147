//! Remedies as values, rendered last: commands that work when they are pasted.

use serde::{Deserialize, Serialize};

/// What to do about a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Remedy {
    /// Run a command on the host.
    Run {
        /// What it achieves.
        effect: String,
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// Write a value into a file of the host.
    Write {
        /// What it achieves.
        effect: String,
        /// The value.
        value: String,
        /// The file.
        file: String,
    },
    /// Restart the VMM with other options.
    Restart {
        /// The program, as it is called in sentences.
        program: String,
        /// Options to take away.
        without: Vec<String>,
        /// Options to add.
        with: Vec<String>,
    },
    /// Put an element into a libvirt domain (`virsh edit`).
    DomainXml {
        /// The domain.
        domain: String,
        /// The element.
        element: String,
    },
    /// Change the guest.
    InGuest {
        /// How.
        advice: String,
    },
}

impl Remedy {
    /// Runs `command` (arguments without blanks) followed by `names`.
    pub(crate) fn run(effect: &str, command: &str, names: &[&str]) -> Self {
        let args = command.split(' ').chain(names.iter().copied());
        Self::Run {
            effect: effect.to_owned(),
            command: args.map(str::to_owned).collect(),
        }
    }

    pub(crate) fn write(effect: &str, value: &str, file: &str) -> Self {
        Self::Write {
            effect: effect.to_owned(),
            value: value.to_owned(),
            file: file.to_owned(),
        }
    }

    /// Starts QEMU with these options.
    pub(crate) fn qemu_with(with: &[&str]) -> Self {
        Self::Restart {
            program: "QEMU".to_owned(),
            without: Vec::new(),
            with: with.iter().map(|&option| option.to_owned()).collect(),
        }
    }

    /// Starts QEMU without these options.
    pub(crate) fn qemu_without(without: Vec<String>) -> Self {
        Self::Restart {
            program: "QEMU".to_owned(),
            without,
            with: Vec::new(),
        }
    }

    pub(crate) fn guest(advice: &str) -> Self {
        Self::InGuest {
            advice: advice.to_owned(),
        }
    }

    /// As text; `quote` makes one argument of a shell's line.
    pub fn render(&self, quote: fn(&str) -> String) -> String {
        match self {
            Self::Run { effect, command } => {
                let args: Vec<String> = command.iter().map(|arg| quote(arg)).collect();
                format!("{effect}: {}", args.join(" "))
            }
            Self::Write {
                effect,
                value,
                file,
            } => format!("{effect}: echo {} > {}", quote(value), quote(file)),
            Self::Restart {
                program,
                without,
                with,
            } => restart(program, without, with),
            Self::DomainXml { domain, element } => {
                format!("virsh edit {}: add {element}", quote(domain))
            }
            Self::InGuest { advice } => format!("in the guest: {advice}"),
        }
    }
}

fn restart(program: &str, without: &[String], with: &[String]) -> String {
    let part = |word: &str, options: &[String]| match options {
        [] => String::new(),
        options => format!(" {word} {}", options.join(" ")),
    };
    format!(
        "start {program}{}{}",
        part("without", without),
        part("with", with)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quote(word: &str) -> String {
        if word.contains(' ') {
            format!("'{word}'")
        } else {
            word.to_owned()
        }
    }

    #[test]
    fn a_remedy_is_a_line_that_can_be_pasted() {
        let text = |remedy: &Remedy| remedy.render(quote);
        let pin = Remedy::run("pin its vCPUs", "tare pin", &["my vm"]);
        assert_eq!(text(&pin), "pin its vCPUs: tare pin 'my vm'");
        let quota = Remedy::write("lift the quota", "max 100000", "/sys/fs/cgroup/a/cpu.max");
        assert_eq!(
            text(&quota),
            "lift the quota: echo 'max 100000' > /sys/fs/cgroup/a/cpu.max"
        );
        let hpet = Remedy::qemu_with(&["-machine hpet=off"]);
        assert_eq!(text(&hpet), "start QEMU with -machine hpet=off");
        let usb = Remedy::qemu_without(vec!["-usb".to_owned()]);
        assert_eq!(text(&usb), "start QEMU without -usb");
        let xml = Remedy::DomainXml {
            domain: "my vm".to_owned(),
            element: "<timer name='hpet' present='no'/>".to_owned(),
        };
        assert_eq!(
            text(&xml),
            "virsh edit 'my vm': add <timer name='hpet' present='no'/>"
        );
    }
}
