"""The families of tasks, by theme; importing this package registers them all."""

from data_gen.families import config as config
from data_gen.families import correspondence as correspondence
from data_gen.families import database as database
from data_gen.families import logs as logs
from data_gen.families import organise as organise
from data_gen.families import planning as planning
from data_gen.families import scripts as scripts
from data_gen.families import tables as tables
