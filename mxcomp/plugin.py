"""placeholder"""
def emit_plugin(*a): raise NotImplementedError
