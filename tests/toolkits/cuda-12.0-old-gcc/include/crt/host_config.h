#error -- unsupported GNU version! gcc versions later than 6 are not supported!
