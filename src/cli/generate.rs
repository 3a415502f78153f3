//! What is generated from the table of flags: shell completions and the man page.

use std::io::{self, Write};

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::flags::Cli;

/// The completions for this shell.
pub(super) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, &name, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        // clap_complete 4.6 names the branches of a subcommand otherwise than it jumps to them if the
        // program's name has a hyphen (clap-rs/clap issue 6421).
        Shell::Bash => script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__")),
        _ => script,
    }
}

/// The man page (section 8, of daemons) in roff: one for all commands.
pub(super) fn man() -> String {
    let mut command = Cli::command().disable_help_subcommand(true);
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
        let man = Man::new(subcommand.clone());
        man.render_synopsis_section(&mut section)?;
        man.render_description_section(&mut section)?;
        Man::new(without_known(subcommand, command)).render_options_section(&mut section)?;
        page.extend(
            String::from_utf8_lossy(&section)
                .replace("\n.SH ", "\n.SS ")
                .bytes(),
        );
    }
    man.render_extra_section(page)?;
    man.render_version_section(page)
}

/// `subcommand` with only those flags shown that mean something else in `command`, or nothing.
fn without_known(subcommand: &Command, command: &Command) -> Command {
    let meaning = |arg: &Arg| (arg.get_help().cloned(), arg.get_default_values().to_vec());
    let is_known = |arg: &Arg| {
        let mut known = command.get_arguments();
        let known = known.find(|known| known.get_id() == arg.get_id());
        let is_everywhere = ["help", "version"].contains(&arg.get_id().as_str());
        is_everywhere || known.is_some_and(|known| meaning(known) == meaning(arg))
    };
    subcommand.clone().mut_args(|arg| {
        let is_known = is_known(&arg);
        arg.hide(is_known)
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Shell, completions, man};

    /// What bash offers after these words, of which the last is not complete.
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
