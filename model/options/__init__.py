"""`option.*` as typed settings: read once, in the host's process, without the engine's library.

    serving.properties, OPTION_*, --set --load_settings--> properties    environment/: other containers' variables
    DJL's init call --------------------------------------> properties --settings_of--> Settings

An option is declared once. To add one, write a field with its type, its meaning and its default, and read the field:

    class Settings(msgspec.Struct):                                                           # settings.py
        merge_records: Annotated[bool, Option("Whether one chunk may carry several records.")] = False

From that come its reading, the messages, its line of the documentation (`options_table()`) and `lmi check`.

option.py          what can be declared of an option, and how its text is read
settings.py        the options that are kept as given, and what is resolved from others: Settings, Limits
deciding_options.py   those that only decide fields of Settings: backend, task, rolling_batch ...
media_rules.py     the options of images; adapter_options.py: those of LoRA adapters; session_options.py: of
                   sessions and of responses that are kept
table.py           all of them, and those that go to the engine, to DJL or to nobody; the documentation
option_reader.py   texts to values, and what is wrong with them
parallel/          several devices and hosts: vLLM's sizes, of DJL's degrees
combined.py        what several options decide together: backend, task, batching, draft model
lmcache.py         the options of LMCache
load.py            settings_of, load_settings
finding.py         what there is to say of a configuration: `Settings.notes`, and what `lmi check` finds
properties.py      serving.properties and the environment as DJL Serving reads them
environment/       what other variables mean: a cluster's, Hugging Face's, TGI's, SM_VLLM_*
advice/            names and values of other servers, with what to write instead; quotes and comments in a value
model_dir.py       what the model's folder must hold

A name that is not in the table may be an argument of the engine: it goes to `Settings.engine_arguments` as it is, and
the engine's process judges it (model/vllm/options.py); only a name that is all but one of the table's, or one that
advice/ knows and no version of vLLM, is refused here.
"""

from __future__ import annotations

from .load import load_settings, settings_of
from .properties import read_properties
from .settings import Settings
from .table import options_table

__all__ = ["Settings", "load_settings", "options_table", "read_properties", "settings_of"]
