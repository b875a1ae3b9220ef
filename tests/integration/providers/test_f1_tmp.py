from tests.integration.providers.test_litellm_provider import *
PAGE=b"<html><body>Sign in</body></html>"
@both_models
async def test_x(server, make, model):
    server.answer(*whole(200, PAGE, content_type="text/html"))
    p=make(model)
    orig=p._finished
    def f(decoder, stream):
        print(type(stream), getattr(stream,"_hidden_params",None), getattr(stream,"response_headers",None), getattr(stream,"_response_headers",None)); 
        s=getattr(stream,"completion_stream",None); print(type(s), getattr(getattr(s,"response",None),"headers",None))
        return orig(decoder, stream)
    p._finished=f
    try: await ask(p, model, stream=True)
    except Exception as e: print(repr(e))
    assert 0
