"""calls.py - calls of the tests, in threads of their own or with the error that they raise."""
import threading


def in_threads(*calls):
    raised = []

    def guarded(call):
        try:
            call()
        except BaseException as error:
            raised.append(error)
    threads = [threading.Thread(target=guarded, args=(c,)) for c in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if raised:
        raise raised[0]


def raised(call):
    """The type and the text of the call's error, or None and "no error"."""
    try:
        call()
    except Exception as error:
        return type(error), str(error)
    return None, "no error"
