"""Messages of protocol buffers by their definitions, without generated code."""

from collections.abc import Callable
from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto


def message_classes(**messages: str) -> Callable[[str], Any]:
    """Makes classes of messages, and returns them by name.

    A definition has the fields, as in `value 1 repeated int64`, separated by commas. A type with a capital is another
    message. An option, such as `int64[packed]`, is true.
    """

    def field(name: str, number: str, label: str, kind: str) -> dict[str, Any]:
        kind, _, option = kind.rstrip("]").partition("[")
        is_message = kind[0].isupper()
        types = {"type": "TYPE_MESSAGE", "typeName": f".beamrank.{kind}"} if is_message else {}
        return {
            "name": name,
            "number": int(number),
            "label": f"LABEL_{label.upper()}",
            "type": f"TYPE_{kind.upper()}",
            "options": {option: True} if option else {},
            **types,
        }

    defined = {
        "name": "messages.proto",
        "package": "beamrank",
        "syntax": "proto2",
        "messageType": [
            {"name": name, "field": [field(*each.split()) for each in fields.split(",")]}
            for name, fields in messages.items()
        ],
    }
    pool = descriptor_pool.DescriptorPool()
    pool.Add(json_format.ParseDict(defined, FileDescriptorProto()))
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"beamrank.{name}"))
