"""Every command once: its key, its verb in the footer, and what it does; help, footer and palette are made of these."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One thing that a key does."""

    where: str  # everywhere, dashboard, logs, profiles, link
    keys: str  # as it is written for people
    verb: str  # in the footer, lower case
    says: str  # one sentence for help and palette
    action: str | None = None  # of the app, or `screen.<action>`; None = a way to move, not for the palette


COMMANDS: tuple[Command, ...] = (
    Command("everywhere", "1", "dashboard", "Server, GPUs and the newest log lines", "mode('dashboard')"),
    Command("everywhere", "2", "logs", "The whole log: search, phases, errors, ranks", "mode('logs')"),
    Command("everywhere", "3", "profiles", "Profiles, their difference, command and pre-flight", "mode('profiles')"),
    Command(
        "everywhere", "4", "bench screen", "What was measured: arms side by side, live, with verdicts", "mode('bench')"
    ),
    Command("everywhere", "5", "journal", "Empty in this version", "mode('journal')"),
    Command("everywhere", "b", "bench", "Measure the running server: choose a bench first", "bench"),
    Command("everywhere", "l", "launch", "Launch a profile: preview and findings first", "launch"),
    Command(
        "everywhere",
        "r",
        "replace",
        "Stop our server and launch in its place; without a link: connect again",
        "replace",
    ),
    Command("everywhere", "S", "stop", "Stop the server on show; asks first", "stop"),
    Command("everywhere", "/", "search", "Search the log, or the list on show", "search"),
    Command("everywhere", "o", "override", "Launch with other values for some flags, k=v", "override"),
    Command("everywhere", "h", "other host", "Show another host; servers here go on", "hosts"),
    Command("everywhere", "y", "copy", "Copy the command, the report or the line; into a file too", "copy"),
    Command("everywhere", "Tab", "panel", "Next panel; in the search field: highlight or filter (^R: expression)"),
    Command("everywhere", "Enter", "open", "Open what is under the cursor", "screen.open"),
    Command("everywhere", "Esc", "back", "Back"),
    Command("everywhere", "j k g G", "move", "Down, up, first, last; arrows and page keys too"),
    Command("everywhere", "?", "help", "This list", "help"),
    Command("everywhere", "^P", "palette", "All commands by name", "command_palette"),
    Command("everywhere", "q", "leave", "Leave; servers go on", "leave"),
    Command(
        "dashboard", "a", "apply and relaunch", "Apply the suggested change and launch again, after showing it", "apply"
    ),
    Command("dashboard", "f", "follow", "Follow the newest log line, or hold still", "screen.follow"),
    Command("dashboard", "[ ]", "servers", "Previous and next server that runs on this host"),
    Command("dashboard", "p", "power history", "History of utilisation, or of power", "screen.power"),
    Command("logs", "n N", "next, previous", "Next and previous hit of the search"),
    Command("logs", "[ ]", "phases", "Previous and next phase"),
    Command("logs", "e E", "errors", "Next and previous error"),
    Command("logs", "R", "ranks", "All ranks, then one after the other; Tab, arrows and space choose several"),
    Command("logs", "A", "access lines", "All lines, or all but the access lines of the HTTP server"),
    Command("logs", "+ -", "context", "More or fewer lines around each hit, while only hits are shown"),
    Command("logs", ":", "go to", "A line, :3318; a time, :20:33; a place in the file, :50%", "screen.line"),
    Command("logs", "Enter", "open", "Opens a fold; on a single line shows the whole of it"),
    Command("logs", "space", "open, close", "Opens the fold under the cursor, or closes it again"),
    Command("logs", "z", "folds", "Repeated lines and tracebacks folded, or every line"),
    Command("logs", "|", "side by side", "Two ranks, or another run, on a common time axis", "screen.beside"),
    Command("logs", "t", "time", "Time of day, or time since the log began"),
    Command("logs", "w", "wrap", "Long lines over several rows, or cut"),
    Command("logs", "left right", "sideways", "Moves cut lines; < and > go to their beginning and end"),
    Command("logs", "V", "select", "Begins a selection or drops it; the mouse and shift with arrows do, too"),
    Command("logs", "W", "write", "The selection, or every line that passes the filter, into a file", "screen.write"),
    Command("logs", "p", "plot", "Decode figures above the log, or more rows of it", "screen.plot"),
    Command("logs", "f", "follow", "Follow the newest line, or hold still"),
    Command("profiles", "e", "edit", "Open the profile in $EDITOR", "screen.edit"),
    Command("profiles", "c", "compare", "Difference to another profile", "screen.compare"),
    Command("profiles", "i", "import", "Make a profile of a posted launch command", "screen.import_command"),
    Command("bench", "space", "pause", "Pause once the launch under way is measured, or go on", "screen.pause"),
    Command("bench", "v", "verdict", "The verdict of the selected arm, and what it rests on", "screen.verdict"),
    Command("bench", "Enter", "run record", "Every run of the selected arm, with all guards", "screen.open"),
    Command("bench", "P", "one more pair", "Launch and measure each arm once more", "screen.pair"),
    Command("bench", "x", "export", "What is on show as CSV and Markdown, into the data directory", "screen.export"),
    Command("bench", "S", "stop", "End the measurement; asks first", "screen.stop"),
    Command(
        "bench", "E", "experiments", "Experiments: configurations launched and measured by turns", "screen.experiments"
    ),
    Command("bench", "c", "choose arms", "Which stored configurations stand side by side", "screen.choose"),
    Command("bench", "p", "other plot", "Every run, whether speculation pays, or the run under way", "screen.plot"),
    Command("bench", "[ ]", "load", "Previous and next load of the bench"),
    Command("bench", "Tab", "arm", "Next arm; arrows, j and k too"),
    Command("refused or lost link", "r", "connect again", "Connect again, at once", "reconnect"),
    Command("refused or lost link", "h", "other host", "Show another host"),
)


def keys(*names: str, where: str = "everywhere") -> tuple[tuple[str, str], ...]:
    """Footer entries of commands by their key, those of `where` first."""
    found = []
    for name in names:
        command = next(
            (c for place in (where, "everywhere") for c in COMMANDS if c.where == place and c.keys == name), None
        )
        if command is not None:
            found.append((command.keys, command.verb))
    return tuple(found)
