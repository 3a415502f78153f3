//! Shell completions and the man page, generated from the definition of the flags.

use std::io::{self, Write};

use clap::builder::PossibleValue;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::flags::Cli;

/// The sections of the man page that no flag defines.
const SECTIONS: &str = include_str!("generate/sections.roff");

pub(super) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, &name, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        // clap_complete 4.6 uses two names for the same branch of a subcommand if the program's
        // name has a hyphen (clap-rs/clap issue 6421).
        Shell::Bash => script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__")),
        Shell::Fish => fish(&script, &command),
        _ => script,
    }
}

/// clap_complete 4.6 offers files where a flag of the default command lacks its value, and for all
/// positional arguments.
fn fish(script: &str, command: &Command) -> String {
    let mut lines = script.lines().map(str::trim_start);
    let parse = lines.find(|line| line.starts_with("argparse "));
    let parse = parse.unwrap_or_default();
    let again = format!("    or begin; set -e cmd[-1]; {parse}; end\n    or return\n");
    let mut script = script.replacen("    or return\n", &again, 1);
    let name = command.get_name();
    for subcommand in command.get_subcommands() {
        let condition = format!("__fish_{}_using_subcommand", name.replace('-', "_"));
        let condition = format!("\"{condition} {}\"", subcommand.get_name());
        for argument in subcommand.get_positionals() {
            let values = argument.get_possible_values();
            let values: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
            let line = format!(
                "complete -c {name} -n {condition} -f -a \"{}\"\n",
                values.join(" ")
            );
            script.push_str(&line);
        }
    }
    script
}

/// Returns the man page in roff, section 8: one page for all commands.
pub(super) fn man() -> String {
    // clap_mangen leaves out the help of flags that `-h` does not show.
    let show = |arg: Arg| arg.hide_short_help(false);
    let mut command = Cli::command().disable_help_subcommand(true);
    command = command.mut_args(show);
    command = command.mut_subcommands(|subcommand| subcommand.mut_args(show));
    command.build();
    let mut page = Vec::new();
    write_man(&command, &mut page).expect("memory takes what is written");
    String::from_utf8_lossy(&page).into_owned()
}

fn write_man(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command.clone()).section("8");
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    for subcommand in command.get_subcommands() {
        let name = subcommand.get_bin_name().unwrap_or_default();
        writeln!(page, ".SH \"{}\"", name.to_uppercase())?;
        let mut section = Vec::new();
        let man = Man::new(with_short_usage(subcommand));
        man.render_synopsis_section(&mut section)?;
        man.render_description_section(&mut section)?;
        let own = without_known(subcommand, command);
        let is_shared = own
            .get_arguments()
            .any(|arg| arg.is_hide_set() && !is_general(arg));
        Man::new(own).render_options_section(&mut section)?;
        if is_shared {
            section.extend(
                b".PP\nThis command also takes flags of the daemon; its \\-\\-help lists them.\n",
            );
        }
        page.extend(
            String::from_utf8_lossy(&section)
                .replace("\n.SH ", "\n.SS ")
                .bytes(),
        );
    }
    page.write_all(SECTIONS.as_bytes())?;
    man.render_version_section(page)
}

/// `subcommand` with the usage of its help, `[OPTIONS]` for all flags.
fn with_short_usage(subcommand: &Command) -> Command {
    let usage = subcommand.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    subcommand.clone().override_usage(usage)
}

/// Returns `subcommand` with the flags hidden that have the same meaning in `command`.
fn without_known(subcommand: &Command, command: &Command) -> Command {
    let meaning = |arg: &Arg| (arg.get_help().cloned(), arg.get_default_values().to_vec());
    let is_known = |arg: &Arg| {
        let mut known = command.get_arguments();
        let known = known.find(|known| known.get_id() == arg.get_id());
        is_general(arg) || known.is_some_and(|known| meaning(known) == meaning(arg))
    };
    subcommand.clone().mut_args(|arg| {
        let is_known = is_known(&arg);
        arg.hide(is_known)
    })
}

/// True for the flags that every command has.
fn is_general(arg: &Arg) -> bool {
    ["help", "version"].contains(&arg.get_id().as_str())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Shell, completions, man};

    /// Returns the completions that bash offers for the last of these words.
    fn bash_offers(words: &[&str]) -> Vec<String> {
        let mut script = completions(Shell::Bash);
        script.push_str(
            r#"
            COMP_WORDS=("$@")
            COMP_CWORD=$(($# - 1))
            function=$(complete -p "$1")
            function=${function#*-F }
            ${function%% *} "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\n' "${COMPREPLY[@]}"
            "#,
        );
        let bash = Command::new("bash")
            .args(["--norc", "-c", &script, "bash"])
            .args(words)
            .output();
        let output = bash.expect("bash runs");
        let text = |bytes| String::from_utf8(bytes).expect("what bash prints is text");
        assert_eq!(text(output.stderr), "");
        let offers = text(output.stdout);
        offers.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn bash_completes_the_flags_of_each_command() {
        for (command, flag) in [
            ("run", "--dry-run"),
            ("explain", "--output"),
            #[cfg(feature = "devserver")]
            ("dev", "--nodes"),
            ("config", "--dry-run"),
            ("rbac", "--user"),
            #[cfg(feature = "devserver")]
            ("demo", "--fast"),
        ] {
            let offers = bash_offers(&["replicaset-controller", command, &flag[..4]]);
            assert!(offers.contains(&flag.to_owned()), "{command}: {offers:?}");
        }
        let offers = bash_offers(&["replicaset-controller", "completions", "b"]);
        assert_eq!(offers, ["bash"]);
        let offers = bash_offers(&["replicaset-controller", "--dry"]);
        assert_eq!(offers, ["--dry-run"]);
    }

    /// The words are offered by a fish, if there is one.
    #[test]
    fn fish_offers_values_and_no_files() {
        let script = completions(Shell::Fish);
        let expected = r#"using_subcommand completions" -f -a "bash elvish fish powershell zsh""#;
        assert!(script.contains(expected), "{script}");
        for (line, expected) in [
            (
                "completions ",
                &["bash", "elvish", "fish", "powershell", "zsh"][..],
            ),
            ("--logging-format ", &["json", "text"]),
            ("--v=4 --logging-format ", &["json", "text"]),
            ("explain ", &[]),
            ("explain --output ", &["json", "text"]),
        ] {
            let command = format!("{script}\ncomplete -C 'replicaset-controller {line}'");
            let Ok(output) = Command::new("fish").args(["-c", &command]).output() else {
                return;
            };
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let offers: Vec<&str> = text
                .lines()
                .filter_map(|it| it.split('\t').next())
                .collect();
            assert_eq!(offers, expected, "{line}");
        }
    }

    #[test]
    fn flags_are_in_the_completions_and_the_man_page() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(shell);
            assert!(script.contains("leader-elect-lease-duration"), "{shell}");
        }
        let page = man();
        assert!(page.contains("leader\\-elect\\-lease\\-duration"), "{page}");
        for flag in [
            #[cfg(feature = "devserver")]
            "pod\\-ready\\-after",
            "service\\-account",
            "token\\-file",
        ] {
            assert!(
                page.contains(&format!("\\fB\\-\\-{flag}\\fR")),
                "no {flag} in\n{page}"
            );
        }
        assert!(!page.contains("replicaset\\-controller\\-dev"), "{page}");
    }

    #[test]
    fn the_man_page_has_the_sections_of_a_daemon() {
        let page = man();
        let sections: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .map(|section| section.trim_matches('"'))
            .filter(|section| !section.starts_with("REPLICASET-CONTROLLER"))
            .collect();
        let expected = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "API SERVER",
            "CONTROLLERS",
            "OPT-INS (NOT IN KUBE-CONTROLLER-MANAGER)",
            "LEADER ELECTION",
            "SERVING",
            "FEATURES",
            "LOG",
            "CONFIGURATION",
            "EXIT STATUS",
            "SIGNALS",
            "ENVIRONMENT",
            "FILES",
            "EXAMPLES",
            "SEE ALSO",
            "VERSION",
        ];
        assert_eq!(sections, expected);
        let mut lines = page.lines();
        let mut usages = Vec::new();
        while lines.any(|line| line.ends_with(" SYNOPSIS")) {
            usages.extend(lines.next());
        }
        assert_eq!(
            usages[0],
            "\\fBreplicaset\\-controller\\fR [OPTIONS] [COMMAND]"
        );
        assert!(
            usages.contains(&"\\fBreplicaset\\-controller explain\\fR [OPTIONS] [OBJECT]..."),
            "{usages:?}"
        );
        assert!(usages.iter().all(|usage| usage.len() < 80), "{usages:?}");
        let shared = "This command also takes flags of the daemon";
        assert!(
            page.matches(shared).count() >= 4,
            "run, explain, config, rbac"
        );
        // The help of a flag that only --help shows.
        assert!(page.contains("Maximum pods created or deleted per sync"));
    }

    #[cfg(not(feature = "devserver"))]
    #[test]
    fn what_is_not_built_in_is_not_listed() {
        let shells = [Shell::Bash, Shell::Zsh, Shell::Fish];
        let texts = shells.map(completions).into_iter().chain([man()]);
        for text in texts {
            for word in ["demo", "insecure-listen", "insecure\\-listen"] {
                assert!(!text.contains(word), "{word} is in\n{text}");
            }
        }
        let offers = bash_offers(&["replicaset-controller", "de"]);
        assert_eq!(offers, [""; 0]);
    }
}
