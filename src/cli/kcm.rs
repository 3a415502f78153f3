//! `--kcm-compat`: what kube-controller-manager accepts and this daemon does not have is ignored
//! and reported (kubernetes `cmd/kube-controller-manager/app/options`, component-base,
//! controller-manager, cloud-provider, apiserver).

use clap::CommandFactory;

use super::flags::{Cli, GATES};
use super::sources::Argument;

/// Every flag of kube-controller-manager 1.34 to 1.37, deprecated flags included, with the type of
/// its value in `--help`; no type for a bool.
const FLAGS: &str = include_str!("kcm/flags.txt");

/// The other controllers of kube-controller-manager and their older names (kubernetes
/// `cmd/kube-controller-manager/names/controller_names.go`, and the aliases in `app`).
const CONTROLLERS: &str = include_str!("kcm/controllers.txt");

/// The end of a message about `--vmodule`: what replaces the flag.
pub const MODULES: &str = "; RUST_LOG sets the level of single modules, as in \
                           RUST_LOG=replicaset_controller::client=trace";

/// Returns whether the flag takes a value; `None` if kube-controller-manager has no such flag.
pub(super) fn takes_value(name: &str) -> Option<bool> {
    FLAGS.lines().find_map(|line| {
        let (known, kind) = line.split_once(' ').unwrap_or((line, ""));
        (known == name).then_some(!kind.is_empty())
    })
}

/// The names of kube-controller-manager's flags that this daemon does not have, without dashes.
pub(super) fn names() -> Vec<&'static str> {
    let run = Cli::command();
    let own = run.get_arguments().filter_map(clap::Arg::get_long);
    // clap adds these two when it parses.
    let own: Vec<&str> = own.chain(["help", "version"]).collect();
    let all = FLAGS.lines().filter_map(|line| line.split(' ').next());
    all.filter(|name| !own.contains(name)).collect()
}

/// The flags, fields and items that `--kcm-compat` ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(pub Vec<String>);

impl Ignored {
    /// Removes everything that only kube-controller-manager understands: its other flags,
    /// controllers and feature gates, and empty values, which mean the default there.
    pub(super) fn take_out(&mut self, arguments: Vec<Argument>) -> Vec<Argument> {
        let lists = arguments
            .iter()
            .filter(|it| it.name().as_deref() == Some("controllers"));
        let lists: Vec<_> = lists.filter_map(Argument::value).collect();
        let runs_none = lists
            .iter()
            .flat_map(|list| list.split(','))
            .all(is_foreign);
        let foreign = names();
        let kept = arguments.into_iter().filter_map(|argument| {
            let (Some(name), value) = (argument.name(), argument.value()) else {
                return Some(argument);
            };
            if foreign.contains(&&*name) {
                let flag = format!("--{name}");
                if !self.0.contains(&flag) {
                    self.0.push(flag);
                }
                return None;
            }
            let Some(value) = value else {
                return Some(argument);
            };
            match name.as_str() {
                _ if value.is_empty() => None,
                // The lists name no controller of this program, so none would run. The check of
                // `--controllers` reports that as a mistake.
                "controllers" if runs_none => Some(argument),
                "controllers" => self.keep_items(argument, &name, &value, |item| !is_foreign(item)),
                "feature-gates" => {
                    // kube-controller-manager also accepts the form `kube:NAME=BOOL`.
                    let value = value.replace("kube:", "");
                    self.keep_items(argument, &name, &value, is_own_gate)
                }
                _ => Some(argument),
            }
        });
        kept.collect()
    }

    fn keep_items(
        &mut self,
        argument: Argument,
        name: &str,
        value: &str,
        is_own: fn(&str) -> bool,
    ) -> Option<Argument> {
        let (own, foreign): (Vec<&str>, Vec<&str>) =
            value.split(',').partition(|item| is_own(item));
        let foreign = foreign.iter().map(|item| format!("--{name}={item}"));
        self.0.extend(foreign);
        let value = own.join(",");
        (!own.is_empty()).then(|| Argument::new(name, value.as_ref(), argument.origin))
    }
}

/// True for a controller that only kube-controller-manager has. An unknown name is kept, and so
/// rejected.
fn is_foreign(item: &str) -> bool {
    let name = item.strip_prefix('-').unwrap_or(item);
    CONTROLLERS.lines().any(|known| known == name)
}

fn is_own_gate(item: &str) -> bool {
    let name = item.split('=').next().unwrap_or_default();
    GATES.iter().any(|gate| gate.name == name)
}

#[cfg(test)]
mod tests;
