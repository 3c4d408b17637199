# A sign-up in three steps with python-telegram-bot: `TOKEN=... python ptb_signup.py`, Redis on localhost.
from os import environ

from msgspec import Struct
from telegram.ext import Application, MessageHandler

from hitherto import Flow, Keeper, State
from hitherto.ptb import InState, NoFlow, attach


class Person(Struct):
    name: str = ""
    email: str = ""


class Signup(Flow, data=Person):
    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to="done")
    done = State()


async def start(update, context):
    context.turn.start(Signup)
    await update.message.reply_text("What is your name?")


async def name(update, context):
    context.turn.data.name = update.message.text
    context.turn.transition(Signup.ask_email)
    await update.message.reply_text("And your e-mail?")


async def email(update, context):
    context.turn.data.email = update.message.text
    context.turn.transition(Signup.done)
    await update.message.reply_text(f"Thank you, {context.turn.data.name}!")


builder = Application.builder().base_url(environ.get("API", "https://api.telegram.org/bot"))
keeper = Keeper("signup", environ.get("STORE", "redis://localhost"), [Signup])
application = attach(builder.token(environ["TOKEN"]).build(), keeper)
application.add_handler(MessageHandler(NoFlow() | InState(Signup.done), start))
application.add_handler(MessageHandler(InState(Signup.ask_name), name))
application.add_handler(MessageHandler(InState(Signup.ask_email), email))
application.run_polling(poll_interval=0)
