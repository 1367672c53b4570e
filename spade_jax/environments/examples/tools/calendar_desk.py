"""An assistant's calendar: find a free hour, move a meeting, invite a colleague."""

from typing import ClassVar

from tool_env import ToolEnv

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
HOURS = tuple(range(9, 17))
TITLES = ("budget", "hiring", "release", "review", "training", "planning", "retrospective")
PEOPLE = ("Ines", "Jonas", "Kaya", "Luka", "Mara")


class CalendarDeskEnv(ToolEnv):
    """A crowded week. Each day has exactly one free hour, which only the day's list shows."""

    schemas: ClassVar = {
        "book": {
            "type": "object",
            "properties": {
                "day": {"type": "string", "enum": list(DAYS)},
                "hour": {"type": "integer", "minimum": 9, "maximum": 16},
                "title": {"type": "string", "minLength": 1},
            },
            "required": ["day", "hour", "title"],
        }
    }

    def setup(self, rng):
        """Fills all hours of the week but one a day."""
        self.free = {day: rng.choice(HOURS) for day in DAYS}
        self.state.update(meetings={}, invited=[], reminders={}, next=1)
        for day in DAYS:
            for hour in HOURS:
                if hour != self.free[day]:
                    self._enter(day, hour, rng.choice(TITLES))
        self.first, self.second = rng.sample(DAYS, 2)
        self.title = f"{rng.choice(('dental', 'client', 'press'))} visit"
        self.guest = rng.choice(PEOPLE)
        self.minutes = rng.choice((5, 10, 15, 30, 45))

    def _enter(self, day, hour, title):
        number = self.state["next"]
        self.state["next"] = number + 1
        self.state["meetings"][str(number)] = {"day": day, "hour": hour, "title": title}
        return number

    def stages(self):
        """Book, invite, move, remind."""
        first, second, title = self.first, self.second, self.title
        guest, minutes = self.guest, self.minutes

        def booked(state, day):
            return [
                number
                for number, meeting in state["meetings"].items()
                if (meeting["day"], meeting["title"]) == (day, title)
            ]

        return [
            (
                f"Put a '{title}' into my free hour on {first}.",
                lambda state: len(booked(state, first)) == 1,
            ),
            (
                f"{guest} should come along to it.",
                lambda state: any([number, guest] in state["invited"]
                                  for number in booked(state, first)),
            ),
            (
                f"Sorry, {first} is impossible after all. Move it to the free hour on {second}.",
                lambda state: bool(booked(state, second)) and not booked(state, first),
            ),
            (
                f"And remind me of it {minutes} minutes before.",
                lambda state: any(state["reminders"].get(number) == minutes
                                  for number in booked(state, second)),
            ),
        ]  # fmt: skip

    def tool_list_day(self, day: str):
        """Lists the meetings of a day by hour, and its free hours.

        day: name of the day
        """
        if day not in DAYS:
            raise ValueError(f"{day} is no working day")
        meetings = self.state["meetings"].items()
        today = {m["hour"]: {"id": int(n), **m} for n, m in meetings if m["day"] == day}
        return {
            "meetings": [today[hour] for hour in sorted(today)],
            "free_hours": [hour for hour in HOURS if hour not in today],
        }

    def tool_book(self, day: str, hour: int, title: str):
        """Enters a meeting and tells its id.

        day: name of the day
        hour: hour at which it begins, from 9 to 16
        title: what it is about
        """
        self._need_free(day, hour)
        return {"id": self._enter(day, hour, title.strip(" '\"").lower())}

    def tool_move(self, id: int, day: str, hour: int):
        """Moves a meeting to another day or hour that is free."""
        meeting = self._meeting(id)
        self._need_free(day, hour)
        meeting.update(day=day, hour=hour)
        return "The meeting was moved."

    def tool_invite(self, id: int, person: str):
        """Invites a colleague to a meeting.

        id: id of the meeting
        person: first name
        """
        self._meeting(id)
        if person not in PEOPLE:
            raise ValueError(f"{person} does not work here; there are {', '.join(PEOPLE)}")
        self.state["invited"].append([str(id), person])
        return f"{person} was invited."

    def tool_set_reminder(self, id: int, minutes: int):
        """Has a reminder sound before a meeting.

        id: id of the meeting
        minutes: how long before
        """
        self._meeting(id)
        self.state["reminders"][str(id)] = minutes
        return "The reminder was set."

    def tool_count_meetings(self):
        """Tells how many meetings there are in the week."""
        return len(self.state["meetings"])

    def _meeting(self, number):
        if str(number) not in self.state["meetings"]:
            raise ValueError(f"there is no meeting {number}")
        return self.state["meetings"][str(number)]

    def _need_free(self, day, hour):
        taken = {(m["day"], m["hour"]) for m in self.state["meetings"].values()}
        if day not in DAYS or hour not in HOURS or (day, hour) in taken:
            raise ValueError(f"{day} at {hour} is not free")

    def solution(self):
        """The new meeting gets the next id."""
        number = self.state["next"]
        return [
            [
                ("list_day", {"day": self.first}),
                ("book", {"day": self.first, "hour": self.free[self.first], "title": self.title}),
            ],
            [("invite", {"id": number, "person": self.guest})],
            [
                ("list_day", {"day": self.second}),
                ("move", {"id": number, "day": self.second, "hour": self.free[self.second]}),
            ],
            [("set_reminder", {"id": number, "minutes": self.minutes})],
        ]
