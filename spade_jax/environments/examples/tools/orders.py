"""A shop's support desk: find a customer's order, change where it goes, give money back."""

from typing import Literal

from tool_env import ToolEnv

NAMES = ("Ada Quist", "Bela Orban", "Chi Nakata", "Dov Peretz", "Eno Lind", "Fia Moreau")
STREETS = ("Mill Lane", "Harbour Road", "Castle Street", "Orchard Way", "Station Square")
ITEMS = ("kettle", "lamp", "rucksack", "tent", "radio", "blanket")


class ShopDeskEnv(ToolEnv):
    """Twelve orders of six customers; what a customer's newest order is must be looked up."""

    def setup(self, rng):
        """Draws the shop's books."""
        numbers = rng.sample(range(1000, 10000), 12)
        orders = {
            str(number): {
                "customer": NAMES[place % 6],
                "item": rng.choice(ITEMS),
                "price": rng.randint(5, 90),
                "status": "open" if place >= 6 else "delivered",
                "address": f"{rng.randint(1, 99)} {rng.choice(STREETS)}",
            }
            for place, number in enumerate(numbers)
        }
        self.state.update(orders=orders, refunds={}, notes=[])
        self.customer = rng.choice(NAMES)
        own = [n for n, order in orders.items() if order["customer"] == self.customer]
        self.old, self.new = own
        self.address = f"{rng.randint(100, 199)} {rng.choice(STREETS)}"

    def stages(self):
        """Move the open order, refund the delivered one, note it."""
        old, new, address = self.old, self.new, self.address
        price = self.state["orders"][old]["price"]
        return [
            (
                f"This is {self.customer}. Please send my open order to {address} instead.",
                lambda state: state["orders"][new]["address"] == address,
            ),
            (
                "The one that was delivered arrived broken. I want all my money for it back.",
                lambda state: state["refunds"].get(old) == {"amount": price, "reason": "damaged"},
            ),
            (
                "Leave a note on that order, saying: call before delivery.",
                lambda state: [old, "call before delivery"] in state["notes"],
            ),
        ]

    def tool_find_orders(self, customer: str):
        """Lists the orders of a customer, the oldest first.

        customer: full name
        """
        orders = self.state["orders"].items()
        found = [
            {"order": number, "item": order["item"], "status": order["status"]}
            for number, order in orders
            if order["customer"].lower() == customer.lower()
        ]
        if not found:
            raise ValueError(f"no customer is called {customer}")
        return found

    def tool_read_order(self, order: str):
        """Tells everything about one order.

        order: number of the order
        """
        return self._order(order)

    def tool_change_address(self, order: str, address: str):
        """Sends an order somewhere else; only possible while it is open.

        order: number of the order
        address: house number and street
        """
        if self._order(order)["status"] != "open":
            raise ValueError(f"order {order} has been delivered")
        self.state["orders"][order]["address"] = address
        return "The address was changed."

    def tool_refund(self, order: str, amount: int, reason: Literal["damaged", "late", "unwanted"]):
        """Gives money back for a delivered order.

        order: number of the order
        amount: at most the price of the order
        reason: why
        """
        if self._order(order)["status"] != "delivered":
            raise ValueError(f"order {order} has not been delivered yet")
        if not 0 < amount <= self._order(order)["price"]:
            raise ValueError(f"{amount} is more than was paid, or nothing")
        self.state["refunds"][order] = {"amount": amount, "reason": reason}
        return f"{amount} will be paid back."

    def tool_add_note(self, order: str, text: str):
        """Attaches a note to an order.

        order: number of the order
        text: what the note says
        """
        self._order(order)
        self.state["notes"].append([order, text.strip(" .").lower()])
        return "Noted."

    def tool_list_items(self):
        """Lists what the shop sells."""
        return sorted(ITEMS)

    def _order(self, number):
        if number not in self.state["orders"]:
            raise ValueError(f"there is no order {number}")
        return self.state["orders"][number]

    def solution(self):
        """Find both orders, read the price of the old one."""
        price = self.state["orders"][self.old]["price"]
        return [
            [
                ("find_orders", {"customer": self.customer}),
                ("change_address", {"order": self.new, "address": self.address}),
            ],
            [
                ("read_order", {"order": self.old}),
                ("refund", {"order": self.old, "amount": price, "reason": "damaged"}),
            ],
            [("add_note", {"order": self.old, "text": "call before delivery"})],
        ]
