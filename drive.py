import sys,shutil
from playwright.sync_api import sync_playwright
exe=next(filter(None,map(shutil.which,["chromium","chromium-browser","google-chrome"])))
A=sys.argv[1]
with sync_playwright() as p:
    b=p.chromium.launch(executable_path=exe,args=["--no-sandbox"]); pg=b.new_page(viewport={"width":1440,"height":900})
    msgs=[]
    pg.on("console",lambda m: msgs.append((m.type,m.text))); pg.on("pageerror",lambda e: msgs.append(("error",str(e))))
    pg.on("response",lambda r: r.status>=400 and msgs.append((r.status,r.url)))
    pg.goto(A+"/"); pg.wait_for_timeout(800)
    for n,name in enumerate(["lr_orig","log","lift.hdf5","pole-v0"]):
        pg.goto(A+"/"); pg.wait_for_timeout(500)
        pg.get_by_text(name,exact=True).first.click(); pg.wait_for_timeout(2000)
        pg.screenshot(path=f"/tmp/walk/v{n}.png")
        print(name, pg.url)
    print(msgs)
