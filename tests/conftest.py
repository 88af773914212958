"""What all tests share: hypothesis settings that do not depend on how busy the machine is."""

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.load_profile("default")
