"""The set-up: from an empty screen to a saved profile and a started run, by keyboard."""

from __future__ import annotations

import dataclasses
import os
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Footer, Static

from eagle3_console import report
from eagle3_console.errors import UsageError
from eagle3_console.plan import Plan
from eagle3_console.profiles.write import ProfileExists
from eagle3_console.setup.assess import Assessment, after_restart, assess, at_fault, next_step, profile_name
from eagle3_console.setup.draft import ASKED, SETTINGS, Draft, Field, from_plan
from eagle3_console.ui.draw import MUTED, words
from eagle3_console.ui.glyphs import Glyphs
from eagle3_console.ui.setup import draw
from eagle3_console.ui.setup.asking import Asking
from eagle3_console.ui.setup.fields import Complete, PathField, PathInput, SettingField
from eagle3_console.ui.setup.line import FieldInput
from eagle3_console.ui.setup.seam import SetupBox
from eagle3_remote.protocol import PathEntry, PathList


@dataclasses.dataclass(frozen=True)
class Chosen:
    """How the set-up was left."""

    plan: Plan
    then: Literal["nothing", "start"]
    path: str
    """Where the profile lies."""


@dataclasses.dataclass(frozen=True)
class Unsaved:
    """What was typed and not saved."""

    draft: Draft
    name: str
    """Of the profile, where the person gave one."""


class SetupScreen(ModalScreen[Chosen | None]):
    """Asks, proposes, shows the plan, saves. The result is `None` where it was left without saving.

    Args:
        box: who answers.
        plan: what is known already.
        running: what the running server was started with; `None`: none runs.
        target: what the person typed to get here.
        restart: the dashboard's key that restarts the server.
        unsaved: what was typed here before; `None`: begin with `plan`.
    """

    CSS_PATH = "setup.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    AUTO_FOCUS = "#input-model"
    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority: see `OrderedInput`. Of two with one key the first that is possible counts.
        Binding("tab", "complete", "complete", key_display="tab", priority=True),
        Binding("tab", "next", "next", key_display="tab", priority=True),
        Binding("shift+tab", "back", "back", show=False, priority=True),
        Binding("escape", "close", "close list", key_display="esc", priority=True),
        Binding("escape", "leave", "leave", key_display="esc", priority=True),
        Binding("pagedown", "page(1)", "read on", key_display="pgdn", priority=True),
        Binding("pageup", "page(-1)", "read back", show=False, priority=True),
        Binding("ctrl+s", "save(False)", "save", key_display="ctrl+s", priority=True),
        Binding("ctrl+r", "save(True)", "save and start all", key_display="ctrl+r", priority=True),
        Binding("ctrl+q", "app.quit", show=False),
        Binding("ctrl+c", "app.help_quit", show=False),
    ]

    def __init__(
        self,
        box: SetupBox,
        plan: Plan,
        running: Plan | None,
        target: str,
        glyphs: Glyphs,
        restart: str,
        unsaved: Unsaved | None = None,
    ) -> None:
        super().__init__()
        self._restart = restart
        self._box = box
        self._base = plan
        self._server = running
        self._target = target
        self._glyphs = glyphs
        self._draft: Draft = unsaved.draft if unsaved is not None else from_plan(plan)
        self._asking = Asking(box, self._answered)
        self._named = unsaved.name if unsaved is not None else ""
        """The profile's, where the person gave one."""
        self._loaded = plan.profile
        self._asked_for: tuple[str, bool] | None = None
        """Name and key of the last save that would have replaced another profile."""
        self.made: Assessment = assess(self._draft, self._asking.seen, plan, target, running)
        texts = self._draft.texts
        self._paths = {
            field.name: PathField(at, field, texts.get(field.name, ""), self._complete(field), self._typed, glyphs)
            for at, field in enumerate(ASKED, 1)
        }
        self._settings = {
            field.name: SettingField(field, texts.get(field.name, ""), self._typed, glyphs) for field in SETTINGS
        }

    def _complete(self, field: Field) -> Complete:
        """Names for a path. An output that is not begun yet is offered the folder beside the data first."""

        async def complete(typed: str, folders_only: bool) -> PathList:
            found = await self._box.complete(typed, folders_only)
            data = self._asking.seen.data
            if typed or field.name != "out" or data is None or not os.path.isabs(data.path):
                return found
            beside = PathEntry(os.path.dirname(data.path.rstrip("/")) or "/", True)
            others = (one for one in found.entries if one.name != beside.name)
            return dataclasses.replace(found, entries=(beside, *others))

        return complete

    def compose(self) -> ComposeResult:
        """Left: the box and what to extract. Right: proposals, the plan, and saving."""
        yield Static(
            words((f"Set-up of {self._target}", "bold"), "  what is on it, what to extract, and how"), id="setup-head"
        )
        yield Static(id="setup-running")
        with VerticalScroll(id="setup-body", can_focus=False):
            with VerticalScroll(can_focus=False):
                with Vertical(classes="setup-part", id="setup-box"):
                    yield Static(words(("looking at the box", MUTED)), id="setup-found")
                with Vertical(classes="setup-part", id="setup-asked"):
                    yield from self._paths.values()
            with VerticalScroll(can_focus=False, id="setup-right"):
                with Vertical(classes="setup-part", id="setup-settings"):
                    yield from self._settings.values()
                with Vertical(classes="setup-part", id="setup-plan"):
                    yield Static(id="setup-forecast")
                    yield Static(id="setup-line")
                with Vertical(classes="setup-part", id="setup-save"):
                    with Horizontal():
                        yield Static(words(("Name", "bold")), classes="field-label")
                        yield FieldInput("setup-name", self._named, self._glyphs.cut, self._name_typed)
                    with Horizontal(id="setup-buttons"):
                        yield Button("Save (ctrl+s)", id="save", compact=True)
                        yield Button("Save and start all (ctrl+r)", id="start", variant="success", compact=True)
                        yield Button("Leave (esc)", id="leave", compact=True)
        yield Static(id="setup-next")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Ask the box at once."""
        titles = {
            "setup-box": "The box",
            "setup-asked": "What to extract",
            "setup-settings": "Proposed, change what you like",
            "setup-plan": "The plan",
            "setup-save": "Save as a profile",
        }
        for name, title in titles.items():
            self.query_one(f"#{name}").border_title = title
        self._asking.follow(self._draft)
        self._show()

    def on_unmount(self) -> None:
        """Nothing is asked for a screen that is gone."""
        self._asking.close()

    def _typed(self, name: str, text: str) -> None:
        """A field says something else."""
        proposal = self.made.proposals.get(name)
        own = "" if proposal is not None and text.strip() == proposal.text else text
        self._draft = self._draft.typed(name, own)
        self._answered()

    def _name_typed(self, text: str) -> None:
        """The profile's name: from now on it is the person's."""
        self._named = text

    def on_descendant_focus(self) -> None:
        """The hint of a field stands where it has the focus."""
        self._show()

    async def on_button_pressed(self, event: Button.Pressed) -> None:
        """Enter or a click."""
        event.stop()
        if event.button.id == "leave":
            await self.action_leave()
        else:
            await self.action_save(event.button.id == "start")

    @property
    def unsaved(self) -> Unsaved | None:
        """What a person typed; `None`: nothing that the plan did not say already."""
        changed = self._named or self._draft != from_plan(self._base)
        return Unsaved(self._draft, self._named) if changed else None

    @property
    def _path(self) -> PathField | None:
        """The path that is typed into now."""
        return self.focused.owner if isinstance(self.focused, PathInput) else None

    async def _caught_up(self) -> None:
        if isinstance(self.focused, FieldInput):
            await self.focused.caught_up()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Tab and esc are shown as what they do now."""
        if action == "complete":
            return self._path is not None and self._path.completes
        if action == "close":
            return self._path is not None and self._path.listing
        return True

    async def action_complete(self) -> None:
        """Go on with the path; where that is right, or how it goes on is not known, the next field."""
        await self._caught_up()
        if self._path is None or not self._path.complete():
            self.focus_next()

    async def action_next(self) -> None:
        """The next field."""
        await self._caught_up()
        self.focus_next()

    async def action_back(self) -> None:
        """The field before."""
        await self._caught_up()
        self.focus_previous()

    async def action_close(self) -> None:
        """Close the list of names."""
        await self._caught_up()
        if self._path is not None:
            self._path.close()

    async def action_leave(self) -> None:
        """Nothing is saved, nothing is left on the box."""
        await self._caught_up()
        self.dismiss(None)

    def action_page(self, step: int) -> None:
        """Read what does not fit on the screen."""
        body = self.query_one("#setup-body", VerticalScroll)
        parts = list(body.query("#setup-body > VerticalScroll").results(VerticalScroll))
        for part in parts if self.has_class("-wide") else [body]:
            part.scroll_relative(y=step * max(part.size.height - 2, 1), animate=False)

    async def action_save(self, start: bool) -> None:
        """Keep it as a profile of this host, where all is known and nothing stands against it."""
        await self._caught_up()
        if not self.made.ready or (start and (self._asking.launch_fault or self.made.waits)):
            self._point_at_fault()
            return
        name = self.query_one("#setup-name", FieldInput).value.strip()
        replace = name == self._loaded or self._asked_for == (name, start)
        self._asked_for = None
        try:
            path = self._box.save(name, self.made.plan, replace=replace)
        except UsageError as error:
            text = str(error)
            if isinstance(error, ProfileExists):
                self._asked_for = (name, start)
                text += " The same key again replaces it; or give another name."
            self.notify(text, title="not saved", severity="warning", markup=False)
            self.query_one("#setup-name").focus()
            return
        plan = dataclasses.replace(self.made.plan, profile=name)
        self.dismiss(Chosen(plan, "start" if start else "nothing", path))

    def _point_at_fault(self) -> None:
        if name := at_fault(self.made) or next(iter(self.made.waits), ""):
            self.query_one(f"#input-{name}").focus()
        self.notify(self._next(self.made), title="not saved", severity="warning", markup=False)

    def _answered(self) -> None:
        """Something was typed, or the box has told something."""
        if not self.is_attached:
            return
        self._asking.follow(self._draft)
        self._show()

    def _show(self) -> None:
        if not self.is_mounted:
            return
        seen = self._asking.seen
        made = self.made = assess(self._draft, seen, self._base, self._target, self._server)
        self._asking.follow_line(made)
        if made.box:
            self.query_one("#setup-found", Static).update(draw.findings(made.box, self._glyphs))
        looks = {"model": seen.model, "data": seen.data, "out": seen.out}
        for name, field in self._paths.items():
            text = made.texts[name]
            field.show(made.fields.get(name, ()), bool(text) and looks[name] is None)
        for name, setting in self._settings.items():
            own = name in self._draft.texts
            setting.show(made.texts[name], made.proposals.get(name), own, made.fields.get(name, ()))
        self._show_plan(made)
        self._show_name(made)
        self._show_running()
        self.query_one("#setup-next", Static).update(words(f"{self._glyphs.arrow} {self._next(made)}"))

    def _next(self, made: Assessment) -> str:
        if made.ready and self._asking.launch_fault:
            return f"Not yet: {self._asking.launch_fault}"
        return next_step(made, self._restart)

    def _show_plan(self, made: Assessment) -> None:
        text = (
            draw.findings(made.forecast, self._glyphs)
            if made.forecast
            else words(("known when Model and Data are", MUTED))
        )
        self.query_one("#setup-forecast", Static).update(text)
        line = self.query_one("#setup-line", Static)
        if self._asking.launch is not None:
            head = words(
                ("The line that starts the server", "bold"), f" (SGLang {self._asking.launch.sglang_version}):"
            )
            exact = report.command_line(self._asking.launch.argv, self._asking.launch.env)
            notes = [words((f"# {note}", MUTED)) for note in self._asking.launch.notes]
            line.update(Content("\n").join([head, words(exact), *notes]))
        elif self._asking.launch_fault:
            line.update(words((f"{self._glyphs.failed} wrong: ", "bold $text-error"), self._asking.launch_fault))
        elif self._asking.waits_for_line():
            line.update(words(("asking SGLang's own parser for the exact line", MUTED)))
        line.display = made.ready

    def _show_name(self, made: Assessment) -> None:
        name = self.query_one("#setup-name", FieldInput)
        if self._named:
            return
        text = self._loaded or (profile_name(made.plan, self._target) if made.plan.model else "")
        if name.value != text:
            name.put(text)

    def _show_running(self) -> None:
        line = self.query_one("#setup-running", Static)
        line.set_class(self._server is not None, "-shown")
        if self._server is None:
            return
        text = (
            "A server runs. Data, Output, Longest and Samples count from the next extraction on; "
            f"the rest after a restart ({self._restart})."
        )
        if waits := after_restart(self.made):
            text = f"A server runs: {waits} ({self._restart} on the dashboard)."
        line.update(words(f"{self._glyphs.warning} {text}"))
