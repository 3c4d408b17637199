# A sign-up in three steps behind FastAPI: `uvicorn fastapi_signup:app`, then `setWebhook` to /telegram.
from dataclasses import dataclass
from os import environ

import httpx
from fastapi import FastAPI

from hitherto import Flow, Keeper, State, asgi


@dataclass
class Person:
    name: str = ""
    email: str = ""


class Signup(Flow, data=Person):
    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to="done")
    done = State()


async def handler(turn):
    text, reply = turn.event["message"]["text"], "You are signed up already. /start again?"
    if turn.flow is None or text == "/start":
        turn.start(Signup)
        reply = "What is your name?"
    elif turn.state == Signup.ask_name:
        turn.data.name, reply = text, "And your e-mail?"
        turn.transition(Signup.ask_email)
    elif turn.state == Signup.ask_email:
        turn.data.email, reply = text, f"Thank you, {turn.data.name}!"
        turn.transition(Signup.done)
    message = {"chat_id": turn.event["message"]["chat"]["id"], "text": reply}
    async with httpx.AsyncClient(base_url=environ.get("API", "https://api.telegram.org")) as telegram:
        await telegram.post(f"/bot{environ['TOKEN']}/sendMessage", json=message)


keeper = Keeper("signup", environ.get("STORE", "redis://localhost"), [Signup])
app = FastAPI(lifespan=asgi.lifespan(keeper))
app.add_route("/telegram", asgi.telegram(keeper, handler, secret=environ["SECRET"]))
