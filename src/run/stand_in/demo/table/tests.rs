//! The table as it stands on terminals of different sizes.

use std::time::Duration;

use super::{Room, Row, Scene, Style, legend, render};

const ASCII: Style = Style {
    has_colors: false,
    has_unicode: false,
};

fn scene() -> Scene {
    let row = |name: &str, counts: [usize; 4], pods: (usize, usize), event: &str| Row {
        name: name.to_owned(),
        desired: counts[0],
        current: counts[1],
        ready: counts[2],
        available: counts[3],
        pods,
        last_event: event.to_owned(),
        is_warning: event.starts_with("Error"),
    };
    Scene {
        elapsed: Duration::from_millis(12_345),
        chapter: (2, 6),
        headline: "A pod is killed and replaced".to_owned(),
        about: "empty",
        command: "kubectl delete pod web-bcdfg".to_owned(),
        rows: vec![
            row("web", [8, 8, 7, 7], (7, 8), "Created pod: web-xxxxx"),
            row(
                "worker",
                [200, 40, 40, 40],
                (40, 120),
                "Created pod: worker-xxxxx",
            ),
            row(
                "tight/greedy",
                [2, 3, 3, 3],
                (3, 3),
                "Error creating: quota",
            ),
            row("empty", [0, 0, 0, 0], (0, 0), ""),
        ],
        notes: vec!["web-bcdfg was deleted".to_owned()],
    }
}

#[track_caller]
fn check(width: usize, height: usize, expected: &[&str]) {
    let lines = render(&scene(), Room { width, height }, ASCII);
    assert_eq!(lines, expected, "\n{}", lines.join("\n"));
}

#[test]
fn a_wide_terminal_shows_everything() {
    check(
        100,
        20,
        &[
            "2/6  A pod is killed and replaced                                                             12.3 s",
            "$ kubectl delete pod web-bcdfg",
            "",
            "NAME         DESIRED CURRENT READY AVAILABLE                      LAST EVENT",
            "web                8       8     7         7  ################==  Created pod: web-xxxxx",
            "worker           200      40    40        40  ####=======.......  Created pod: worker-xxxxx",
            "tight/greedy       2       3     3         3  ############++++++  Error creating: quota",
            "empty              0       0     0         0",
            "",
            "web-bcdfg was deleted",
        ],
    );
}

#[test]
fn eighty_columns_cut_the_events() {
    check(
        80,
        20,
        &[
            "2/6  A pod is killed and replaced                                         12.3 s",
            "$ kubectl delete pod web-bcdfg",
            "",
            "NAME         DESIRED CURRENT READY AVAILABLE                LAST EVENT",
            "web                8       8     7         7  ###########=  Created pod: web-xx~",
            "worker           200      40    40        40  ##=====.....  Created pod: worker~",
            "tight/greedy       2       3     3         3  ########++++  Error creating: quo~",
            "empty              0       0     0         0",
            "",
            "web-bcdfg was deleted",
        ],
    );
}

#[test]
fn a_narrower_one_shows_no_events() {
    check(
        60,
        20,
        &[
            "2/6  A pod is killed and replaced                     12.3 s",
            "$ kubectl delete pod web-bcdfg",
            "",
            "NAME         DESIRED CURRENT READY AVAILABLE",
            "web                8       8     7         7  ############==",
            "worker           200      40    40        40  ###=====......",
            "tight/greedy       2       3     3         3  #########+++++",
            "empty              0       0     0         0",
            "",
            "web-bcdfg was deleted",
        ],
    );
}

#[test]
fn a_very_narrow_one_shows_what_is_ready() {
    check(
        30,
        20,
        &[
            "2/6  A pod is killed~   12.3 s",
            "$ kubectl delete pod web-bcdfg",
            "",
            "web                        7/8",
            "worker                  40/200",
            "tight/greedy               3/2",
            "empty                      0/0",
            "",
            "web-bcdfg was deleted",
        ],
    );
}

#[test]
fn a_low_one_leaves_out_the_oldest_rows() {
    check(
        60,
        8,
        &[
            "2/6  A pod is killed and replaced                     12.3 s",
            "$ kubectl delete pod web-bcdfg",
            "",
            "NAME         DESIRED CURRENT READY AVAILABLE",
            "tight/greedy       2       3     3         3  #########+++++",
            "empty              0       0     0         0",
            "",
            "web-bcdfg was deleted",
        ],
    );
}

#[test]
fn any_terminal_shows_the_row_of_the_chapter() {
    for about in ["web", "worker", "tight/greedy", "empty"] {
        let scene = Scene { about, ..scene() };
        for (width, height) in (20..120).flat_map(|width| [(width, 2), (width, 5), (width, 9)]) {
            let lines = render(&scene, Room { width, height }, ASCII);
            let has_row = lines.iter().skip(1).any(|line| line.starts_with(about));
            assert!(has_row, "{about}, {width} × {height}: {lines:?}");
        }
    }
}

#[test]
fn the_legend_explains_the_cells_of_the_bars() {
    let wide = "pods:  ### ready  === not ready  ... missing  +++ surplus  v checked";
    assert_eq!(legend(ASCII, 80), [wide]);
    let narrow = [
        "pods:  ### ready  === not ready",
        "       ... missing  +++ surplus",
        "       v checked",
    ];
    assert_eq!(legend(ASCII, 40), narrow);
}

#[test]
fn hardly_any_room_is_no_trouble() {
    for width in 0..50 {
        for height in 0..12 {
            let lines = render(&scene(), Room { width, height }, ASCII);
            assert!(lines.len() <= height.max(1));
            let widest = lines.iter().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width}: {lines:?}");
        }
    }
}

#[test]
fn colors_and_shades_only_where_they_are_wanted() {
    let style = Style {
        has_colors: true,
        has_unicode: true,
    };
    let room = Room {
        width: 100,
        height: 20,
    };
    let text = render(&scene(), room, style).join("\n");
    assert!(text.contains("\x1b[32m█") && text.contains("▒"), "{text}");
    let text = render(&scene(), room, ASCII).join("\n");
    assert!(text.is_ascii() && !text.contains('\x1b'), "{text}");
}
