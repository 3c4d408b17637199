# A sign-up in three steps with aiogram: `TOKEN=... python aiogram_signup.py`, with a Redis on localhost.
from os import environ
from typing import TypedDict

from aiogram import Bot, Dispatcher

from hitherto import Flow, Keeper, State
from hitherto.aiogram import attach


class Signup(Flow, data=TypedDict("Person", {"name": str, "email": str}, total=False)):
    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to="done")
    done = State()


dispatcher = attach(Dispatcher(), Keeper("signup", environ.get("STORE", "redis://localhost"), [Signup]))


@dispatcher.message(Signup.ask_name)
async def name(message, turn):
    turn.update_data(name=message.text)
    turn.transition(Signup.ask_email)
    await message.answer("And your e-mail?")


@dispatcher.message(Signup.ask_email)
async def email(message, turn):
    turn.update_data(email=message.text)
    turn.transition(Signup.done)
    await message.answer(f"Thank you, {turn.data['name']}!")


@dispatcher.message()
async def start(message, turn):
    turn.start(Signup)
    await message.answer("What is your name?")


dispatcher.run_polling(Bot(environ["TOKEN"]))
