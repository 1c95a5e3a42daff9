"""Every key once: what it is called, where it works, and its action. Bindings, footers, palette and help are made of this.

A new key is a row here and an action where it works. A place and a key as it is written for people identify a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from textual.binding import Binding, BindingType


@dataclass(frozen=True)
class Key:
    """One thing that a key does, or a pair of keys does in two directions."""

    where: str  # everywhere, a mode, or a dialog
    key: str  # as it is written for people
    verb: str  # in the footer, lower case
    about: str = ""  # one sentence for help and palette; a dialog shows its keys itself
    actions: Mapping[str, str] = field(default_factory=dict)  # by Textual's names of the keys; {} = the focus decides
    priority: bool = False  # taken before the widget that has the focus
    palette: bool = True

    @property
    def command(self) -> str | None:
        """The action as the app runs it from the palette; keys that only move have none."""
        actions = set(self.actions.values())
        if not self.palette or not self.about or len(actions) != 1:
            return None
        action = actions.pop()
        return action if self.where == "everywhere" or "." in action else f"screen.{action}"


# fmt: off
KEYS: tuple[Key, ...] = (
    Key("everywhere", "0", "hosts", "All hosts that are open, one below the other", {"0": "mode('overview')"}),
    Key("everywhere", "1", "dashboard", "Server, GPUs and the newest log lines", {"1": "mode('dashboard')"}),
    Key("everywhere", "2", "logs", "The whole log: search, phases, errors, ranks", {"2": "mode('logs')"}),
    Key("everywhere", "3", "profiles", "Profiles, their difference, command and pre-flight", {"3": "mode('profiles')"}),
    Key("everywhere", "4", "bench screen", "Results: arms side by side, live, with verdicts", {"4": "mode('bench')"}),
    Key("everywhere", "5", "journal", "What was tried, what came out, what is open", {"5": "mode('journal')"}),
    Key("everywhere", "b", "bench", "Measure the running server: choose a bench first", {"b": "bench"}),
    Key("everywhere", "l", "launch", "Launch a profile: preview and findings first", {"l": "launch"}),
    Key("everywhere", "r", "replace", "Stop our server and launch in its place; without a link: connect again",
        {"r": "replace"}),
    Key("everywhere", "S", "stop", "Stop the current server; asks first", {"S": "stop"}),
    # At once, before the keys that came with it are sent to a widget: they are for the search line.
    Key("everywhere", "/", "search", "Search the log, or the current list", {"slash": "search"}, priority=True),
    Key("everywhere", "o", "override", "Launch with other values for some flags, k=v", {"o": "override"}),
    Key("everywhere", "n", "note", "A note for the journal on what is shown", {"n": "note"}),
    Key("everywhere", "m", "member", "Of a group: the next member, and after the last one the whole", {"m": "member"}),
    Key("everywhere", "h", "other host", "Show another host; servers here keep running", {"h": "hosts"}),
    Key("everywhere", "y", "copy", "Copy the command, the report or the line; into a file too", {"y": "copy"}),
    Key("everywhere", "Tab", "panel", "Next panel; in the search field: highlight or filter (^R: expression)"),
    Key("everywhere", "Enter", "open", "Open what is under the cursor", {"enter": "screen.open"}),
    Key("everywhere", "Esc", "back", "Back", {"escape": "screen.back"}, palette=False),
    Key("everywhere", "j k g G", "move", "Down, up, first, last; arrows and page keys too"),
    Key("everywhere", "?", "help", "All keys", {"question_mark": "help"}),
    Key("everywhere", "^P", "palette", "All commands by name", {"ctrl+p": "command_palette"}),
    Key("everywhere", "^Z", "suspend", "Back to the shell; fg comes back", {"ctrl+z": "suspend_process"}),
    Key("everywhere", "q", "quit", "Quit; servers keep running", {"q": "leave"}),
    Key("everywhere", "^C ^Q", "quit", "", {"ctrl+c,ctrl+q": "leave"}, priority=True),
    Key("overview", "Enter", "open", "The dashboard of the host under the cursor", {"enter": "open"}),
    Key("overview", "l", "launch", "Choose host and profile", palette=False),
    Key("overview", "a", "apply and relaunch", "Apply the change that is suggested for the host under the cursor",
        {"a": "app.apply"}, palette=False),
    Key("overview", "x", "take off", "Takes a host that is not reached off the list", {"x": "close"}, palette=False),
    Key("group", "a", "apply and relaunch", "Apply the change that the member which ended suggests", {"a": "app.apply"},
        palette=False),
    Key("group", "Enter", "open", "Why it ended, else the log of the member that serves", {"enter": "open"}),
    Key("group", "[ ]", "servers", "Previous and next server or job of this host",
        {"left_square_bracket": "app.server(-1)", "right_square_bracket": "app.server(1)"}),
    Key("dashboard", "a", "apply and relaunch", "Apply the suggested change and launch again, after showing it",
        {"a": "app.apply"}),
    Key("dashboard", "f", "follow", "Follow the newest log line, or hold still", {"f": "follow"}),
    Key("dashboard", "[ ]", "servers", "Previous and next server that runs on this host",
        {"left_square_bracket": "app.server(-1)", "right_square_bracket": "app.server(1)"}),
    Key("dashboard", "p", "power history", "History of utilisation, or of power", {"p": "power"}),
    Key("logs", "n N", "next, previous", "Next and previous hit while a search is on; else n is a note", {"n": "hit(1)", "N": "hit(-1)"}),
    Key("logs", "[ ]", "phases", "Previous and next phase",
        {"left_square_bracket": "phase(-1)", "right_square_bracket": "phase(1)"}),
    Key("logs", "e E", "errors", "Next and previous error", {"e": "error(1)", "E": "error(-1)"}),
    Key("logs", "R", "ranks", "All ranks, then one after the other; Tab, arrows and space choose several",
        {"R": "ranks"}, palette=False),
    Key("logs", "A", "access lines", "All lines, or all but the access lines of the HTTP server",
        {"A": "access"}, palette=False),
    Key("logs", "+ -", "context", "More or fewer lines around each hit, while only hits are shown",
        {"plus": "context(1)", "minus": "context(-1)"}),
    Key("logs", ":", "go to", "A line, :3318; a time, :20:33; a place in the file, :50%", {"colon": "line"}),
    Key("logs", "Enter", "open", "Opens a fold; on a single line shows the whole of it"),
    Key("logs", "space", "open, close", "Opens the fold under the cursor, or closes it again",
        {"space": "fold"}, palette=False),
    Key("logs", "z", "folds", "Repeated lines and tracebacks folded, or every line", {"z": "folds"}, palette=False),
    Key("logs", "|", "side by side", "Two ranks, or another run, on a common time axis", {"vertical_line": "beside"}),
    Key("logs", "t", "time", "Time of day, or time since the log began", {"t": "clock"}, palette=False),
    Key("logs", "w", "wrap", "Long lines over several rows, or cut", {"w": "wrap"}, palette=False),
    Key("logs", "left right", "sideways", "Moves cut lines; < and > go to their beginning and end",
        {"left": "side(-1)", "right": "side(1)", "less_than_sign": "line_begin", "greater_than_sign": "line_end"}),
    Key("logs", "V", "select", "Begins a selection or drops it; the mouse and shift with arrows do, too",
        {"V": "select", "shift+down": "extend(1)", "shift+up": "extend(-1)"}),
    Key("logs", "W", "write", "The selection, or every line that passes the filter, into a file", {"W": "write"}),
    Key("logs", "p", "plot", "Decode figures above the log, or more rows of it", {"p": "plot"}),
    Key("logs", "f", "follow", "Follow the newest line, or hold still", {"f": "follow"}, palette=False),
    Key("profiles", "e", "edit", "Open the profile in $EDITOR", {"e": "edit"}),
    Key("profiles", "c", "compare", "Difference to another profile", {"c": "compare"}),
    Key("profiles", "i", "import", "Make a profile of a posted launch command", {"i": "import_command"}),
    Key("profiles", "t", "tune", "Which memory fraction starts, which speculation pays; shows the tune under way",
        {"t": "tune"}),
    Key("tune", "space", "pause", "Pause once the current launch is measured, or continue", {"space": "pause"}),
    Key("tune", "S", "stop", "End the tune; asks first, and it can be resumed", {"S": "stop"}),
    Key("tune", "Enter", "report", "What was found, every step, and what was not tried", {"enter": "open"}),
    Key("bench", "space", "pause", "Pause once the current launch is measured, or continue", {"space": "pause"}),
    Key("bench", "v", "verdict", "The verdict of the selected arm, and what it rests on", {"v": "verdict"}),
    Key("bench", "Enter", "run record", "Every run of the selected arm, with all guards", {"enter": "open"}),
    Key("bench", "P", "one more pair", "Launch and measure each arm once more", {"P": "pair"}),
    Key("bench", "x", "export", "The current results as CSV and Markdown, into the data directory", {"x": "export"}),
    Key("bench", "S", "stop", "End the measurement; asks first", {"S": "stop"}),
    Key("bench", "E", "experiments", "Experiments: configurations launched and measured alternately",
        {"E": "experiments"}),
    Key("bench", "c", "choose arms", "Which stored configurations stand side by side", {"c": "choose"}),
    Key("bench", "p", "other plot", "Every run, whether speculation pays, or the current run", {"p": "plot"}),
    Key("bench", "[ ]", "load", "Previous and next load of the bench",
        {"left_square_bracket": "load(-1)", "right_square_bracket": "load(1)"}),
    Key("bench", "Tab", "arm", "Next arm; arrows, j and k too",
        {"tab,right,j,down": "arm(1)", "shift+tab,left,k,up": "arm(-1)"}),
    Key("journal", "Enter", "open", "The runs of what is under the cursor; where the screen is narrow, the entry first",
        {"enter": "open"}),
    Key("journal", "space", "tick off", "Ticks off the idea under the cursor, or opens it again", {"space": "tick"}),
    Key("journal", "i", "idea", "Writes an open idea", {"i": "idea"}),
    Key("journal", "H", "new hypothesis", "Writes what is to be shown", {"H": "hypothesis"}),
    Key("journal", "R", "all runs", "Every run there was, with a filter", {"R": "app.mode('runs')"}, palette=False),
    Key("journal", "x", "export", "The journal as Markdown, into the data directory", {"x": "export"}),
    Key("runs", "Enter", "card", "All that is kept of the run under the cursor, its crash card too", {"enter": "open"}),
    Key("runs", "2", "its log", "Its log, as long as the host has it", {"2": "log"}, palette=False),
    Key("runs", "l", "launch again", "Launches the same profile with the same flags; shown first", {"l": "again"},
        palette=False),
    Key("runs", "c", "compare", "Its difference to a second run", {"c": "compare"}),
    Key("runs", "R", "hypotheses", "The journal's entries", {"R": "app.mode('journal')"}, palette=False),
    Key("plan", "Enter", "start", "Begins the experiment as it is planned", {"enter": "open"}),
    Key("plan", "p", "pairs", "How many launch pairs", {"p": "knob('p')"}),
    Key("plan", "t", "seconds", "Seconds a run", {"t": "knob('t')"}),
    Key("plan", "r", "runs", "Runs on each launch", {"r": "knob('r')"}),
    Key("plan", "u", "users", "Users at once, or requests a second: one load or several", {"u": "knob('u')"}),
    Key("plan", "w", "bench", "Another bench profile", {"w": "knob('w')"}),
    Key("plan", "B", "budget", "Hours within which every launch ends", {"B": "knob('B')"}),
    Key("plan", "e", "edit arms", "Its file in $EDITOR: profile and overrides of each arm", {"e": "edit"}),
    Key("plan", "y", "copy command", "Copies the command that begins it", {"y": "app.copy"}, palette=False),
    Key("plan", "Esc", "back", "", {"escape": "back"}),
    Key("refused or lost link", "r", "connect again", "Connect again, at once", {"r": "app.reconnect"}),
    Key("refused or lost link", "h", "other host", "Show another host", {"h": "app.hosts"}),
    # Shown by the widget or the dialog that has them.
    Key("rank line", "left right", "choose", "", {"left": "move(-1)", "right": "move(1)"}),
    Key("rank line", "space", "show", "", {"space,enter": "turn"}),
    Key("search field", "Tab", "filter", "", {"tab": "screen.toggle_filter"}, priority=True),
    Key("search field", "^R", "expression", "", {"ctrl+r": "screen.toggle_regex"}, priority=True),
    Key("filter field", "Tab", "complete", "", {"tab": "complete"}, priority=True),
    Key("dialog", "Esc", "back", "", {"escape": "cancel"}),
    Key("dialog", "Enter", "close", "", {"enter,q": "cancel"}),
    Key("dialog", "y", "copy", "", {"y": "copy"}),
    Key("question", "Tab", "to the other", "", {"right,l": "app.focus_next", "left,h": "app.focus_previous"}),
    Key("question", "n", "no", "", {"n": "cancel"}),
    Key("list", "j k", "choose", "",
        {"j": "cursor_down", "k": "cursor_up", "g": "first", "G": "last"}),
    Key("text", "j k", "scroll", "",
        {"j": "scroll_down", "k": "scroll_up", "g": "scroll_home", "G": "scroll_end"}),
    Key("help", "q", "back", "", {"question_mark,q": "cancel"}),
    Key("host list", "↓ ↑", "choose", "", {"down": "move(1)", "up": "move(-1)"}, priority=True),
    Key("refused host key", "y", "copy command", "", {"y": "copy"}),
    Key("refused host key", "r", "connect again", "", {"r": "dismiss('reconnect')"}),
    Key("refused host key", "h", "other host", "", {"h": "dismiss('hosts')"}),
    Key("refused host key", "q", "quit", "", {"q": "dismiss('leave')"}),
    Key("launch dialog", "Enter", "launch", "", {"enter": "go"}),
    Key("launch dialog", "r", "replace", "", {"r": "replace"}),
    Key("launch dialog", "o", "override flags", "", {"o": "override"}),
    Key("launch dialog", "y", "copy command", "", {"y": "copy"}),
    Key("launch dialog", "J", "journal", "", {"J": "journal"}),
    Key("experiment dialog", "r", "resume the unfinished one", "", {"r": "resume"}),
    Key("stored results", "space", "choose", "", {"space": "mark"}),
    Key("import dialog", "^S", "save", "", {"ctrl+s": "save"}, priority=True),
    Key("import dialog", "PgDn", "scroll", "", {"pagedown": "scroll_outcome(5)", "pageup": "scroll_outcome(-5)"}),
)
# fmt: on

COMMANDS = tuple(key for key in KEYS if key.about)
"""What help lists."""


def rows(where: str, *keys: str) -> list[Key]:
    """Rows of a place by their keys, in this order; all of the place where none is named. Raises KeyError."""
    found = {row.key: row for row in KEYS if row.where == where}
    return [found[key] for key in keys] if keys else list(found.values())


def bindings(where: str, *keys: str) -> list[BindingType]:
    """Textual's bindings of rows of a place, of all its rows where none is named. Raises KeyError."""
    return [
        Binding(names, action, row.verb, show=False, priority=row.priority)
        for row in rows(where, *keys)
        for names, action in row.actions.items()
    ]


_MOVES = ("j,down", "k,up", "pagedown,ctrl+f", "pageup,ctrl+b", "g,home", "G,end")


def moving(*actions: str) -> list[BindingType]:
    """Bindings of down, up, a page down, a page up, first and last."""
    return [Binding(names, action, show=False) for names, action in zip(_MOVES, actions, strict=True)]


def keys(*names: str, where: str = "everywhere") -> tuple[tuple[str, str], ...]:
    """Footer entries of keys, those of `where` first. Raises KeyError."""
    found = {row.key: (row.key, row.verb) for place in ("everywhere", where) for row in KEYS if row.where == place}
    return tuple(found[name] for name in names)
