//! Help, completions and manual pages.

mod home;

use home::Home;

#[test]
fn help_shows_examples_and_exit_codes() {
    let home = Home::new();
    let help = home.ok(&["--help"]);
    for part in [
        "Examples:",
        "unvme device create 0000:02:00.0 --size 4G",
        "Exit codes:",
        "  5  not confirmed",
        "UNVME_HOME",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    let nothing = home.run(&[]);
    assert_eq!(nothing.code, 2);
    assert!(nothing.stderr.contains("Usage: unvme"), "{}", nothing.stderr);
}

#[test]
fn every_command_explains_itself() {
    let home = Home::new();
    let help = home.ok(&["-h"]);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    for command in ["list", "id-ctrl", "smart-log", "create-ns", "detach-ns", "write-zeroes", "serve", "man"]
    {
        assert!(commands.contains(&command), "{command} is not among {commands:?}");
    }
    for command in commands {
        assert!(home.ok(&[command, "--help"]).contains("Usage: unvme"), "{command}");
    }
}

#[test]
fn completions_know_the_commands() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(home.ok(&["completions", shell]).contains("COMPLETE"), "{shell}");
    }
    let script = home.file("unvme.bash", home.ok(&["completions", "bash"]).as_bytes());
    let status = std::process::Command::new("bash").args(["-n", &script]).status().expect("bash");
    assert!(status.success(), "bash accepts it");
    home.run(&["completions", "dos"]).fails_with(2, &["dos: expected one of bash, "]);
}

#[test]
fn a_shell_is_told_commands_options_and_devices() {
    let home = Home::with_device();
    let script = home.file("unvme.bash", home.ok(&["completions", "bash"]).as_bytes());
    let program = home.command(&[]).get_program().to_string_lossy().into_owned();
    // As bash does it: the words, the place of the one that is completed, then the function of the script.
    let completed = |words: &[&str]| {
        let list: String = words.iter().map(|word| format!("'{word}' ")).collect();
        let line = format!(
            "unvme() {{ {program} \"$@\"; }}; . {script}; COMP_WORDS=(unvme {list}); COMP_CWORD={}; COMP_TYPE=9; \
             _clap_complete_unvme unvme '{}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.len(),
            words.last().expect("a word"),
        );
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", &line])
            .env("UNVME_HOME", home.path("unvme"))
            .env("UNVME_SYSTEM_ROOT", home.path("system"));
        let output = bash.output().expect("bash");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(completed(&["smart-l"]), ["smart-log"]);
    assert_eq!(completed(&["id-ctrl", "0000:"]), ["0000:02:00.0"]);
    assert_eq!(completed(&["device", "check", ""])[0], "0000:02:00.0");
    assert!(completed(&["perf", "-r", "m"]).contains(&"mem:block:".to_owned()));
    assert!(completed(&["read", "--da"]).contains(&"--data-size".to_owned()));
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let home = Home::new();
    home.ok(&["man", "pages"]);
    let page = |name: &str| std::fs::read_to_string(home.path("pages").join(name)).expect("read");
    assert!(page("unvme.1").contains("Exit codes:"));
    assert!(page("unvme-list-subsys.1").contains(".SH OPTIONS"));
    assert!(page("unvme-smart-log.1").contains(".SH OPTIONS"));
    assert!(page("unvme-device-create.1").contains("Capacity"));
    // What follows the options is broken by hand: longer lines would be broken again by `--help`.
    let mut long = Vec::new();
    for entry in std::fs::read_dir(home.path("pages")).expect("folder") {
        let text = std::fs::read_to_string(entry.expect("entry").path()).expect("read");
        // An apostrophe and a hyphen as roff writes them.
        let text = text.replace("\\*(Aq", "'").replace('\\', "");
        let (_, extra) = text.split_once(".SH EXTRA").unwrap_or_default();
        long.extend(extra.lines().filter(|line| line.len() > 100).map(str::to_owned));
    }
    assert!(long.is_empty(), "{long:#?}");
    assert!(page("unvme-perf.1").contains(".SH EXTRA"));
}
