//! What is generated from the table of flags: shell completions and the man page.

use clap::CommandFactory;
use clap_complete::Shell;

use super::flags::Cli;

/// The completions for this shell.
pub(super) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The man page (section 8, of daemons) in roff.
pub(super) fn man() -> String {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .section("8")
        .render(&mut page)
        .expect("memory takes what is written");
    String::from_utf8_lossy(&page).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Shell, completions, man};

    #[test]
    fn flags_are_in_the_completions_and_the_man_page() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(shell);
            assert!(script.contains("leader-elect-lease-duration"), "{shell}");
        }
        let page = man();
        assert!(page.contains("leader\\-elect\\-lease\\-duration"), "{page}");
    }
}
